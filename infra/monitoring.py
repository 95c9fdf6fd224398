"""The dashboard, and the alarms: each says what it means and what to do first.

They use the metrics of the handlers (namespace `InventoryOrders`, dimension `service`) and those of AWS. No alarm
needs metric math: the handlers emit 0 or 1 for each attempt, so an average is a rate. Stale deletes, stale events and
replays are successes: the dashboard shows them, and no alarm counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.api import Api
from infra.functions import Functions
from infra.queues import Queues
from infra.settings import Settings
from infra.tables import Tables

T = TypeVar("T")

NAMESPACE = "InventoryOrders"
REASONS = ("INSUFFICIENT_STOCK", "UNKNOWN_PRODUCT", "DISCONTINUED_PRODUCT")

RUNBOOK = "docs/runbook.md"

# Limits of a healthy service, from its design.
HEALTHY_CONFLICT_RATE = 0.05
HEALTHY_RETRIES = 0.5
HEALTHY_RETRY_SUCCESS = 0.99

# With more, 50 workers need more visits of the depot than it can have: 11 a second, repeated, of some 15. docs/lanes.md
MOST_DRAWS_LOST = 0.25

# After the grace of its hold.
MOST_EXPIRY_DELAY_SECONDS = 10

# Of a minute's requests, and three minutes in a row: what AWS recommends for REST APIs.
# docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Best_Practice_Recommended_Alarms_AWS_Services.html
MOST_SERVER_ERRORS = 0.05

# Longer than the longest lease (15 minutes): orders wait while a lease is live.
OLDEST_MESSAGE_SECONDS = 1200

# Outcomes are published within a second or two. What is too old at 23 hours is given up, so this is long before.
LATE_EVENTS_SECONDS = 300

# What an alarm makes of silence, by what it watches. docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/
# alarms-and-missing-data.html
_SILENCE = {
    # A dead letter stays without a word: SQS reports a queue for six hours after the last request to it, and is up to 15
    # minutes late when a quiet queue wakes up. So the alarm keeps its state.
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
    "ApproximateNumberOfMessagesVisible": cloudwatch.TreatMissingData.IGNORE,
    # Reported while a message is in the queue. Kept, the state would outlast an outage; and a queue that nobody polls falls
    # silent hours after it was reported.
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    "ApproximateAgeOfOldestMessage": cloudwatch.TreatMissingData.NOT_BREACHING,
    # An event. It passes, so that the next one is mailed again; that dead letters are left, the queue's own alarm says.
    "MessagesDeadLettered": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Without a batch nothing comes back, nothing is in conflict and nothing is given up.
    "TimeSinceFirstReceive": cloudwatch.TreatMissingData.NOT_BREACHING,
    "VersionConflict": cloudwatch.TreatMissingData.NOT_BREACHING,
    "RetriesExhausted": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Nothing is drawn: nothing is lost. Nothing came back for a corrupt page: none was met, or nobody orders.
    "DrawsLost": cloudwatch.TreatMissingData.NOT_BREACHING,
    "CorruptPage": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Reported with invocations of what reads a stream.
    "IteratorAge": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Reported with invocations.
    "Errors": cloudwatch.TreatMissingData.NOT_BREACHING,
    "Throttles": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Reported with requests: nobody asks.
    "5xx": cloudwatch.TreatMissingData.NOT_BREACHING,
    # Of what is invoked by the clock: silence is the trouble.
    "Invocations": cloudwatch.TreatMissingData.BREACHING,
    # Reported only when it happens: AWS's own example of what is not breaching, on the page above. Its page on the API says
    # that an alarm on a metric of DynamoDB keeps its state in silence all the same; the runbook has what to do then.
    # docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
    "ReadThrottleEvents": cloudwatch.TreatMissingData.NOT_BREACHING,
    "WriteThrottleEvents": cloudwatch.TreatMissingData.NOT_BREACHING,
}

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
_MOST_UNITS_OF_A_KEY = {"Read": 3000, "Write": 1000}

_MINUTE = Duration.minutes(1)
_FIVE_MINUTES = Duration.minutes(5)
_GREEN, _RED, _ORANGE = "#2ca02c", "#d62728", "#ff7f0e"
_BLUE, _PURPLE, _GREY, _BROWN = "#1f77b4", "#9467bd", "#7f7f7f", "#8c564b"
_PINK, _OLIVE, _TEAL = "#e377c2", "#bcbd22", "#17becf"
_PALETTE = (_BLUE, _ORANGE, _GREEN, _PURPLE, _BROWN, _GREY, _PINK, _OLIVE, _TEAL)
_WIDTH = 24


def _painted(things: Mapping[str, T]) -> list[tuple[str, T, str]]:
    """Give each of a few named things its colour."""
    colors = _PALETTE[: len(things)]
    return [
        (label, thing, color) for (label, thing), color in zip(things.items(), colors, strict=True)
    ]


class Monitoring(Construct):
    """The dashboard and the alarms of one stage."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: Settings,
        tables: Tables,
        queues: Queues,
        functions: Functions,
        api: Api | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._api = api
        self._service = settings.service_name
        self._hold_grace_seconds = settings.hold_grace_seconds
        self._queues = queues.all
        self._undeliverable = queues.undeliverable_events
        self._functions = functions.all
        self._tables = tables.all
        self.alarms: list[cloudwatch.Alarm] = []
        self._make_alarms()
        if settings.alarm_email:
            topic = sns.Topic(self, "Alarms", enforce_ssl=True)
            # `enforce_ssl` gives the topic a policy, which takes the place of the default one: without this statement
            # nobody may publish, and no alarm is mailed. docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html
            topic.add_to_resource_policy(
                iam.PolicyStatement(
                    actions=["sns:Publish"],
                    principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                    resources=[topic.topic_arn],
                    conditions={
                        "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                        "ArnLike": {
                            "aws:SourceArn": f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm:*"
                        },
                    },
                )
            )
            topic.add_subscription(subscriptions.EmailSubscription(settings.alarm_email))
            for alarm in self.alarms:
                alarm.add_alarm_action(actions.SnsAction(topic))
                alarm.add_ok_action(actions.SnsAction(topic))
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            # The name of a dashboard is unique in the account, that of a stack in its region.
            dashboard_name=f"InventoryOrders-{settings.stage}-{Aws.REGION}",
            default_interval=Duration.hours(3),
        )
        self.dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(alarms=self.alarms, title="Alarms", width=_WIDTH, height=7)
        )
        for section in (
            self._flow,
            self._life,
            self._events,
            self._requests,
            self._contention,
            self._lanes,
            self._efficiency,
            self._platform,
        ):
            section()

    # ------------------------------------------------------------------ metrics

    def _metric(
        self,
        name: str,
        statistic: str,
        label: str,
        color: str,
        reason: str | None = None,
        period: Duration = _MINUTE,
    ) -> cloudwatch.Metric:
        """A metric of the handlers."""
        dimensions = {"service": self._service}
        if reason is not None:
            dimensions["reason"] = reason
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map=dimensions,
            statistic=statistic,
            label=label,
            color=color,
            period=period,
        )

    def _iterator_age(self, statistic: str) -> cloudwatch.Metric:
        """How old the changes are that the publisher is handed, in milliseconds."""
        return self._of_function(
            self._functions["PublishEvents"], "IteratorAge", statistic, "oldest change", _ORANGE
        )

    @staticmethod
    def _of_queue(queue: sqs.Queue, name: str, label: str, color: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace="AWS/SQS",
            metric_name=name,
            dimensions_map={"QueueName": queue.queue_name},
            statistic="Maximum",
            label=label,
            color=color,
            period=_MINUTE,
        )

    @staticmethod
    def _of_table(
        table: dynamodb.TableV2, name: str, label: str, color: str, index: str | None = None
    ) -> cloudwatch.Metric:
        dimensions = {"TableName": table.table_name}
        if index is not None:
            dimensions["GlobalSecondaryIndexName"] = index
        return cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            dimensions_map=dimensions,
            statistic="Sum",
            label=label,
            color=color,
            period=_MINUTE,
        )

    @staticmethod
    def _of_function(
        function: lambda_.Function,
        name: str,
        statistic: str,
        label: str,
        color: str,
        period: Duration = _MINUTE,
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace="AWS/Lambda",
            metric_name=name,
            # All versions and aliases together: docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics.html
            dimensions_map={"FunctionName": function.function_name},
            statistic=statistic,
            label=label,
            color=color,
            period=period,
        )

    @staticmethod
    def _of_api(api: Api, name: str, statistic: str, label: str, color: str) -> cloudwatch.Metric:
        # docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
        return cloudwatch.Metric(
            namespace="AWS/ApiGateway",
            metric_name=name,
            dimensions_map={"ApiId": api.http_api.ref},
            statistic=statistic,
            label=label,
            color=color,
            period=_MINUTE,
        )

    def _each_queue(self, name: str, *, dead: bool = False) -> list[cloudwatch.Metric]:
        return [
            self._of_queue(pair.dead_letters if dead else pair.queue, name, label, color)
            for label, pair, color in _painted(self._queues)
        ]

    def _each_function(self, name: str, statistic: str) -> list[cloudwatch.Metric]:
        return [
            self._of_function(function, name, statistic, label, color)
            for label, function, color in _painted(self._functions)
        ]

    def _each_table(self, name: str) -> list[cloudwatch.Metric]:
        return [
            self._of_table(table, name, label, color)
            for label, table, color in _painted(self._tables)
        ]

    # ------------------------------------------------------------------ alarms

    def _make_alarms(self) -> None:
        for name, pair in self._queues.items():
            self._alarm(
                f"{name}DeadLetters",
                self._of_queue(pair.dead_letters, "ApproximateNumberOfMessagesVisible", name, _RED),
                0,
                f"Messages of {name} were dead-lettered: they can never succeed, or were delivered too often. First: "
                "read errorCode and errorMessage of the dead letters (inventory-orders status). They say what the "
                "sender has to fix.",
            )
            self._alarm(
                f"{name}OldestMessage",
                self._of_queue(pair.queue, "ApproximateAgeOfOldestMessage", name, _ORANGE),
                OLDEST_MESSAGE_SECONDS,
                f"A message of {name} has been waiting for more than 20 minutes, longer than any lease. First: check "
                "whether the function runs (errors, throttles), then why messages are returned (cause in its log).",
                periods=3,
            )
        self._alarm(
            "MessagesDeadLettered",
            self._metric(
                "MessagesDeadLettered", "Sum", "dead-lettered", _RED, period=_FIVE_MINUTES
            ),
            0,
            "A handler has just dead-lettered messages: they can never succeed as they are. First: read errorCode and "
            "errorMessage of the dead letters (inventory-orders status). They say what the sender has to fix.",
        )
        self._alarm(
            "TimeSinceFirstReceive",
            self._metric(
                "TimeSinceFirstReceive", "Maximum", "first received", _ORANGE, period=_FIVE_MINUTES
            ),
            OLDEST_MESSAGE_SECONDS,
            "A message was first received more than 20 minutes ago, longer than any lease, and has come back again. "
            "First: read why messages are returned (cause in the function's log).",
            # What is returned again and again comes back every 15 minutes, so no two periods in a row need have a value:
            # one is enough, and 20 minutes hold at least one.
            periods=4,
            breaching=1,
        )
        self._alarm(
            "ConflictRate",
            self._metric("VersionConflict", "Average", "conflict rate", _RED, period=_FIVE_MINUTES),
            HEALTHY_CONFLICT_RATE,
            "In more than 5 % of the commit attempts a rival was faster, so work is done twice. First: lower "
            "maximumConcurrency or raise batchSize of the queue in cdk.json. Send a drop through the FIFO queue.",
            periods=3,
        )
        self._alarm(
            "RetriesExhausted",
            self._metric("RetriesExhausted", "Average", "given up", _RED, period=_FIVE_MINUTES),
            1 - HEALTHY_RETRY_SUCCESS,
            "More than 1 % of the retried changes ran out of attempts; their messages are delivered again later. "
            "First: look for throttled tables, then for a hot product (productId in the log).",
            periods=2,
        )
        self._alarm(
            "DrawsLost",
            self._metric("DrawsLost", "Average", "lost", _RED, period=_FIVE_MINUTES),
            MOST_DRAWS_LOST,
            "A rival was faster in more than 25 % of the draws from products' rows, so batches stand in line at the "
            "depot more than once. First: find who else writes these rows all the time, and have them send it through "
            "the queues, which batch.",
            periods=3,
        )
        self._alarm(
            "CorruptPage",
            self._metric("CorruptPage", "Sum", "held up", _RED, period=_FIVE_MINUTES),
            0,
            "Messages came back because a page of the table Allotments cannot be read, and will until it is repaired. "
            "First: read which page it is (detail in the function's log).",
            # Like the age above: what is held up comes back every 15 minutes.
            periods=4,
            breaching=1,
        )
        self._alarm(
            "UndeliverableEvents",
            self._of_queue(
                self._undeliverable, "ApproximateNumberOfMessagesVisible", "undeliverable", _RED
            ),
            0,
            "Outcomes could not be published, so nobody hears of them. First: read errorCode and errorMessage in "
            "UndeliverableEventsQueue. Repair what they say, then announce these orders again (inventory-orders announce).",
        )
        self._alarm(
            "PublishEventsIteratorAge",
            self._iterator_age("Maximum"),
            1000 * LATE_EVENTS_SECONDS,
            "Outcomes are published more than 5 minutes late: the bus refuses them, or the function fails. Nothing is lost "
            "for 23 hours. First: read why in the log of PublishEvents (refusals).",
            periods=3,
        )
        for name, function in self._functions.items():
            follows = {
                "Sweep": "units may stay in lanes, holds may not end, or events reach nobody, until it is repaired",
                "Api": "its caller was told so, and may ask again",
                "PublishEvents": "the stream hands it the same changes again, and the next ones wait",
            }.get(name, "its messages return after the visibility timeout")
            self._alarm(
                f"{name}Errors",
                self._of_function(function, "Errors", "Sum", name, _RED),
                0,
                f"{name} raised an exception or timed out; {follows}. First: read the traceback in its log group.",
            )
            self._alarm(
                f"{name}Throttles",
                self._of_function(function, "Throttles", "Sum", name, _ORANGE),
                0,
                f"{name} reached the account's concurrency limit. First: compare that limit with maximumConcurrency "
                "in cdk.json.",
                periods=3,
            )
        if self._api is not None:
            # A single exception is for ApiErrors. This one is for what goes on: also what the function answers without an
            # exception, and what never reaches it.
            self._alarm(
                "Api5xx",
                self._of_api(self._api, "5xx", "Average", "server errors", _RED),
                MOST_SERVER_ERRORS,
                "More than 5 % of the requests to the HTTP API are answered with 500 or 503, for three minutes now. First: "
                "read what could not be done (code and error of its function's log, integrationError of the access log).",
                periods=3,
            )
        self._alarm(
            "SweepSilence",
            metric=self._of_function(
                self._functions["Sweep"], "Invocations", "Sum", "sweeps", _RED, _FIVE_MINUTES
            ),
            threshold=1,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            description="The sweep has not run for a quarter of an hour, so no hold ends, and units stay in lanes that "
            "nobody uses. First: look whether its schedule is enabled.",
            periods=3,
        )
        for name, table in self._tables.items():
            for kind, most_per_second in _MOST_UNITS_OF_A_KEY.items():
                self._alarm(
                    f"{name}{kind}Throttles",
                    self._of_table(table, f"{kind}ThrottleEvents", name, _ORANGE),
                    0,
                    f"DynamoDB throttles {kind.lower()}s of {name}; they are retried with backoff. First: check "
                    f"whether one key is hot (its limit is {most_per_second:,} {kind.lower()} units per second). If "
                    f"none is, set warmThroughput.{name} in cdk.json.",
                    periods=3,
                )
        for index, first in (
            ("byUser", "check whether one user sends very many orders. If not"),
            (
                "byExpiry",
                "check how many holds begin or end in a second: 32 keys share them. If few",
            ),
        ):
            name = index[0].upper() + index[1:]
            self._alarm(
                f"Orders{name}WriteThrottles",
                self._of_table(
                    self._tables["Orders"], "WriteThrottleEvents", index, _ORANGE, index=index
                ),
                0,
                f"DynamoDB throttles the index {index}, and with it the writes of Orders. First: {first}, set "
                "warmThroughput.Orders in cdk.json.",
                periods=3,
            )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        threshold: float,
        description: str,
        periods: int = 1,
        breaching: int | None = None,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
    ) -> None:
        """Add an alarm for so many breaching periods, by default all, of the last ones."""
        self.alarms.append(
            cloudwatch.Alarm(
                self,
                f"{name}Alarm",
                # A label would make it a metric-math alarm, which the embedded AWS does not support.
                metric=cloudwatch.Metric(
                    namespace=metric.namespace,
                    metric_name=metric.metric_name,
                    dimensions_map=metric.dimensions,
                    statistic=metric.statistic,
                    period=metric.period,
                ),
                threshold=threshold,
                comparison_operator=comparison,
                evaluation_periods=periods,
                datapoints_to_alarm=breaching or periods,
                treat_missing_data=_SILENCE[metric.metric_name],
                alarm_description=f"{description} More: {RUNBOOK}",
            )
        )

    # ------------------------------------------------------------------ the dashboard

    def _heading(self, title: str, text: str) -> None:
        self.dashboard.add_widgets(
            cloudwatch.TextWidget(markdown=f"## {title}\n{text}", width=_WIDTH, height=2)
        )

    def _graph(
        self,
        title: str,
        metrics: Sequence[cloudwatch.IMetric],
        unit: str,
        *,
        width: int = 8,
        stacked: bool = False,
        line: tuple[float, str] | None = None,
    ) -> cloudwatch.GraphWidget:
        return cloudwatch.GraphWidget(
            title=title,
            left=list(metrics),
            width=width,
            height=6,
            stacked=stacked,
            left_y_axis=cloudwatch.YAxisProps(label=unit, min=0, show_units=False),
            left_annotations=(
                [cloudwatch.HorizontalAnnotation(value=line[0], label=line[1], color=_RED)]
                if line
                else None
            ),
            legend_position=cloudwatch.LegendPosition.BOTTOM,
        )

    def _flow(self) -> None:
        self._heading(
            "Are orders flowing?",
            "Placed and rejected are both healthy answers. **Age grows** and nothing is placed: look at the platform "
            "below. SQS leaves out what it delivered three times; **came back** is the time since a message was first "
            "received. **Dead letters** stay until somebody acts: their `errorMessage` says what to fix.",
        )
        placed = self._metric("OrdersPlaced", "Sum", "placed", _GREEN)
        rejected = self._metric("OrdersRejected", "Sum", "rejected", _ORANGE)
        self.dashboard.add_widgets(
            cloudwatch.SingleValueWidget(
                title="In this period",
                metrics=[
                    placed,
                    rejected,
                    self._metric("OrdersReplayed", "Sum", "replayed", _BLUE),
                    self._metric("MessagesReturned", "Sum", "returned", _GREY),
                    self._metric("MessagesDeadLettered", "Sum", "dead-lettered", _RED),
                ],
                width=_WIDTH,
                height=3,
                set_period_to_time_range=True,
            )
        )
        reasons = [
            self._metric("OrdersRejected", "Sum", reason, color, reason)
            for reason, color in zip(REASONS, (_ORANGE, _PURPLE, _GREY), strict=True)
        ]
        self.dashboard.add_widgets(
            self._graph("Orders", [placed, rejected], "per period", stacked=True),
            self._graph("Rejected, by reason", reasons, "per period", stacked=True),
            self._graph(
                "Other ends of messages",
                [
                    self._metric("OrdersReplayed", "Sum", "replayed", _BLUE),
                    self._metric("MessagesReturned", "Sum", "returned", _GREY),
                    self._metric("MessagesDeadLettered", "Sum", "dead-lettered", _RED),
                ],
                "per period",
            ),
        )
        self.dashboard.add_widgets(
            self._graph(
                "Age of the oldest message",
                [
                    *self._each_queue("ApproximateAgeOfOldestMessage"),
                    self._metric("TimeSinceFirstReceive", "Maximum", "came back", _RED),
                ],
                "seconds",
                line=(OLDEST_MESSAGE_SECONDS, "longer than any lease"),
            ),
            self._graph(
                "Waiting", self._each_queue("ApproximateNumberOfMessagesVisible"), "messages"
            ),
            self._graph(
                "Dead letters",
                self._each_queue("ApproximateNumberOfMessagesVisible", dead=True),
                "messages",
            ),
        )
        self.dashboard.add_widgets(
            self._graph(
                "Stale, ignored on purpose",
                [
                    self._metric("StaleEventsIgnored", "Sum", "stale events", _BLUE),
                    self._metric("StaleDeletesIgnored", "Sum", "stale deletes", _PURPLE),
                ],
                "per period",
                width=12,
            ),
            self._graph(
                "Products that ran low",
                [self._metric("LowStock", "Sum", "low or out of stock", _ORANGE)],
                "per period",
                width=12,
            ),
        )

    def _events(self) -> None:
        self._heading(
            "Do others hear of it?",
            "What becomes of orders and products is published on the bus, each order's outcomes in their order. **Changes "
            "get older** and events are refused: look at the bus. **Undeliverable** events stay in their queue until "
            "somebody acts: nobody else hears of them.",
        )
        self.dashboard.add_widgets(
            self._graph(
                "Events",
                [
                    self._metric("EventsPublished", "Sum", "published", _GREEN),
                    self._metric("EventsRefused", "Sum", "refused, sent again", _ORANGE),
                    self._metric("EventsUndeliverable", "Sum", "undeliverable", _RED),
                ],
                "per period",
                width=6,
            ),
            self._graph(
                "From the outcome until it is published",
                [
                    self._metric("EventDelay", "p50", "p50", _GREEN),
                    self._metric("EventDelay", "p99", "p99", _RED),
                ],
                "ms",
                width=6,
            ),
            self._graph(
                "Age of the changes",
                [self._iterator_age("Maximum")],
                "ms",
                width=6,
                line=(1000 * LATE_EVENTS_SECONDS, "late"),
            ),
            self._graph(
                "Undeliverable events",
                [
                    self._of_queue(
                        self._undeliverable,
                        "ApproximateNumberOfMessagesVisible",
                        "waiting for somebody",
                        _RED,
                    )
                ],
                "messages",
                width=6,
            ),
        )

    def _requests(self) -> None:
        if self._api is None:
            return
        self._heading(
            "Does the API answer?",
            "4xx are answers: a rejected order, a wrong body, no permission; or **429**, the limit `apiLimits`. **5xx** are none: read "
            "the function's log. Who waits for an order waits in both latencies, up to 25 s. What the first has beyond the second is "
            "API Gateway's own.",
        )
        self.dashboard.add_widgets(
            self._graph(
                "Requests to the API",
                [
                    self._of_api(self._api, "Count", "Sum", "requests", _GREEN),
                    self._of_api(self._api, "4xx", "Sum", "4xx", _ORANGE),
                    self._of_api(self._api, "5xx", "Sum", "5xx", _RED),
                ],
                "per period",
            ),
            *(
                self._graph(
                    title,
                    [
                        self._of_api(self._api, name, "p50", "p50", _GREEN),
                        self._of_api(self._api, name, "p99", "p99", _RED),
                    ],
                    "ms",
                )
                for title, name in (
                    ("Latency of the API", "Latency"),
                    ("Of it, the function", "IntegrationLatency"),
                )
            ),
        )

    def _life(self) -> None:
        grace = self._hold_grace_seconds
        latest = grace + MOST_EXPIRY_DELAY_SECONDS
        self._heading(
            "What becomes of placed orders?",
            f"A hold expires on time if it does so **{grace} to {latest} s** after its end: the first {grace} s are grace for "
            "late payments. If it is later, look at the age of ExpiryQueue and at the sweep. "
            "While very many commands wait, holds do not expire, since a payment may be among them. **Late payments** "
            "are orders to refund: their rows say why.",
        )
        self.dashboard.add_widgets(
            self._graph(
                "Steps",
                [
                    self._metric("OrdersConfirmed", "Sum", "confirmed", _GREEN),
                    self._metric("OrdersFulfilled", "Sum", "fulfilled", _BLUE),
                    self._metric("OrdersCancelled", "Sum", "cancelled", _GREY),
                    self._metric("OrdersExpired", "Sum", "expired", _ORANGE),
                    self._metric("OrdersReturned", "Sum", "returns", _PURPLE),
                ],
                "per period",
            ),
            self._graph(
                "How long after its end a hold expires",
                [
                    self._metric("ExpiryDelay", "p50", "p50", _GREEN),
                    self._metric("ExpiryDelay", "p99", "p99", _ORANGE),
                    self._metric("ExpiryDelay", "Maximum", "latest", _RED),
                ],
                "seconds",
                line=(latest, f"p99 healthy below {latest} s"),
            ),
            self._graph(
                "Late payments",
                [self._metric("ConfirmationsRejected", "Sum", "to refund", _RED)],
                "per period",
            ),
        )

    def _contention(self) -> None:
        self._heading(
            "Is there contention?",
            "Many writers want the same row. Healthy: **conflicts under 5 %, under 0.5 retries on average, 99 % of "
            "retried changes succeed**. Above 5 %: use fewer writers with fuller "
            "batches (`maximumConcurrency`, `batchSize`).",
        )
        percent = cloudwatch.MathExpression(
            expression="100 * rate",
            using_metrics={"rate": self._metric("VersionConflict", "Average", "rate", _RED)},
            label="of attempts",
            color=_RED,
            period=_MINUTE,
        )
        success = cloudwatch.MathExpression(
            expression="100 - 100 * exhausted",
            using_metrics={
                "exhausted": self._metric("RetriesExhausted", "Average", "exhausted", _GREEN)
            },
            label="of retried changes",
            color=_GREEN,
            period=_MINUTE,
        )
        self.dashboard.add_widgets(
            self._graph("Conflict rate", [percent], "%", line=(5, "healthy below 5 %")),
            self._graph(
                "Retries of a change",
                [
                    self._metric("Retries", "Average", "average", _BLUE),
                    self._metric("Retries", "p95", "p95", _PURPLE),
                ],
                "retries",
                line=(HEALTHY_RETRIES, "average healthy below 0.5"),
            ),
            self._graph("Retries that succeed", [success], "%", line=(99, "healthy above 99 %")),
        )
        self.dashboard.add_widgets(
            self._graph(
                "Time spent waiting",
                [
                    self._metric("RetryBackoffTime", "Average", "backoff, average", _ORANGE),
                    self._metric("RetryBackoffTime", "p95", "backoff, p95", _RED),
                    self._metric("LeaseWait", "Average", "in line, average", _BLUE),
                ],
                "ms",
            ),
            self._graph(
                "Failed conditions (DynamoDB)",
                self._each_table("ConditionalCheckFailedRequests"),
                "per period",
            ),
            self._graph(
                "Transaction conflicts",
                [
                    *self._each_table("TransactionConflict"),
                    self._metric("TransactionConflict", "Sum", "seen by handlers", _RED),
                ],
                "per period",
            ),
        )

    def _lanes(self) -> None:
        self._heading(
            "Do lanes help?",
            "Orders that find all they want in **their worker's own lane** meet no rival. What a lane lacks is fetched at "
            "the **depot**, where one worker at a time draws from the rows. Healthy: most orders from lanes, next to no "
            "lost draws, short waits. **Recalls and long waits** show scarce stock.",
        )
        own = cloudwatch.MathExpression(
            expression="100 * own",
            using_metrics={"own": self._metric("OrdersFromLanes", "Average", "own", _GREEN)},
            label="of placed orders",
            color=_GREEN,
            period=_MINUTE,
        )
        lost = cloudwatch.MathExpression(
            expression="100 * lost",
            using_metrics={"lost": self._metric("DrawsLost", "Average", "lost", _RED)},
            label="of draws",
            color=_RED,
            period=_MINUTE,
        )
        self.dashboard.add_widgets(
            self._graph("Orders served by the worker's own lane", [own], "%"),
            self._graph(
                "Draws lost to rivals", [lost], "%", line=(100 * MOST_DRAWS_LOST, "too many visits")
            ),
            self._graph(
                "Wait in line at the depot",
                [
                    self._metric("DepotWait", "Average", "average", _BLUE),
                    self._metric("DepotWait", "p99", "p99", _PURPLE),
                ],
                "ms",
            ),
        )
        self.dashboard.add_widgets(
            self._graph(
                "Who comes to the depot, and why",
                [
                    self._metric("DepotWait", "SampleCount", "visits", _BLUE),
                    self._metric("Draws", "Sum", "rows drawn from", _GREEN),
                    self._metric("Recalls", "Sum", "recalls", _ORANGE),
                ],
                "per period",
            ),
            self._graph(
                "Units lent", [self._metric("UnitsLent", "Sum", "from rows", _GREEN)], "per period"
            ),
            self._graph(
                "Held up by a corrupt page",
                [self._metric("CorruptPage", "Sum", "messages", _RED)],
                "per period",
            ),
        )

    def _efficiency(self) -> None:
        self._heading(
            "How efficient is it?",
            "One transaction can place 99 orders for one product. **Few orders per transaction** under load: batches "
            "are small (raise `batchWindowSeconds`), or orders share no products.",
        )
        placed = self._metric("OrdersPlaced", "Sum", "placed", _GREEN)
        # CloudWatch counts an index apart from its table. One line each: a sum would have a gap where one has.
        units = [
            cloudwatch.MathExpression(
                expression=f"{name} / placed",
                using_metrics={
                    "placed": placed,
                    name: self._of_table(
                        self._tables[table], "ConsumedWriteCapacityUnits", name, color, index
                    ),
                },
                label=f"for {name}",
                color=color,
                period=_MINUTE,
            )
            for name, table, index, color in (
                ("orders", "Orders", None, _BLUE),
                ("index", "Orders", "byUser", _GREY),
                ("products", "Products", None, _ORANGE),
                ("lanes", "Allotments", None, _GREEN),
            )
        ]
        self.dashboard.add_widgets(
            self._graph(
                "Orders per transaction",
                [
                    self._metric("OrdersPerTransaction", "Average", "average", _BLUE),
                    self._metric("OrdersPerTransaction", "Maximum", "most", _GREY),
                ],
                "orders",
                width=6,
            ),
            self._graph(
                "Commit attempts",
                [self._metric("ConditionalWrites", "Sum", "transactions sent", _PURPLE)],
                "per period",
                width=6,
            ),
            self._graph("Capacity", units, "write units per placed order", width=6, stacked=True),
            self._graph(
                "Commit latency",
                [
                    self._metric("CommitLatency", "p50", "p50", _GREEN),
                    self._metric("CommitLatency", "p95", "p95", _ORANGE),
                    self._metric("CommitLatency", "p99", "p99", _RED),
                ],
                "ms",
                width=6,
            ),
        )

    def _platform(self) -> None:
        self._heading(
            "Is the platform healthy?",
            "**Errors** are bugs or timeouts: read the function's log. **Throttles** show a limit: for Lambda the "
            "account's concurrency, for DynamoDB a hot key or a table that is not warm yet.",
        )
        self.dashboard.add_widgets(
            self._graph("Errors", self._each_function("Errors", "Sum"), "per period", width=6),
            self._graph(
                "Throttles", self._each_function("Throttles", "Sum"), "per period", width=6
            ),
            self._graph("Duration, p95", self._each_function("Duration", "p95"), "ms", width=6),
            self._graph(
                "Concurrent invocations",
                self._each_function("ConcurrentExecutions", "Maximum"),
                "invocations",
                width=6,
            ),
        )
        self.dashboard.add_widgets(
            self._graph(
                "Writes throttled by DynamoDB",
                self._each_table("WriteThrottleEvents"),
                "per period",
                width=12,
            ),
            self._graph(
                "Reads throttled by DynamoDB",
                self._each_table("ReadThrottleEvents"),
                "per period",
                width=12,
            ),
        )
