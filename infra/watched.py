"""Declares the alarms and the sections of the dashboard, which `monitoring.py` builds.

The handlers emit 0 or 1 for each attempt, so an average is a rate. Stale deletes, stale events and replays are successes:
the dashboard shows them, but no alarm counts them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk.aws_cloudwatch import ComparisonOperator, TreatMissingData

from inventory_orders.domain.rejection import REASONS_OF_ORDERS


@dataclass(frozen=True, slots=True)
class Metric:
    """A CloudWatch metric of one source, or of all sources of one kind.

    Attributes:
        name: Its name in CloudWatch.
        statistic: How CloudWatch aggregates the values of a period.
        of: A kind of source ("queues"), or a single source ("functions/Sweep"), as in `monitoring.list_things`.
        minutes: The length of a period.
    """

    name: str
    statistic: str
    of: str = "handlers"
    minutes: int = 1


@dataclass(frozen=True, slots=True)
class When:
    """The condition of an alarm.

    Attributes:
        threshold: The threshold, in the unit of the metric.
        periods: How many of the most recent periods are evaluated.
        breaching: How many of these periods must be beyond the threshold. With None, all of them must be.
        silence: How a period without a value counts. Most metrics have values only when something happens, so by default
            such a period counts as healthy. docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
        comparison: Which side of the threshold is unhealthy.
        warm_up_minutes: How long a new alarm waits for its first values. Only needed if silence counts as unhealthy.
            docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-warm-up.html
    """

    threshold: float
    periods: int = 1
    breaching: int | None = None
    silence: TreatMissingData = TreatMissingData.NOT_BREACHING
    comparison: ComparisonOperator = ComparisonOperator.GREATER_THAN_THRESHOLD
    warm_up_minutes: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm for each source of its metric.

    Attributes:
        name: The alarm's name. Here and in `text`, `{name}` stands for the name of the source.
        metric: The metric to watch.
        when: The condition that turns the alarm on.
        text: What the alarm means, and what to do first.
        then: What replaces `{then}` in the text, by the name of the source.
        basic: The sources that have the alarm even with the setting `monitoring: basic`, because orders may be lost or work
            may be stuck there. There are at most ten such alarms, because ten are free, and all are on AWS's own metrics.
    """

    name: str
    metric: Metric
    when: When
    text: str
    then: Mapping[str, str] = field(default_factory=dict)
    basic: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A graph's lines, one for each source of a metric. Each is labelled with its source by default, and coloured from `PALETTE`."""

    metric: Metric
    label: str = ""
    color: str = ""


@dataclass(frozen=True, slots=True)
class Formula:
    """A line that CloudWatch computes from other lines. The expression refers to them by label."""

    expression: str
    label: str
    color: str
    using: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Mark:
    """A horizontal line across a graph, with a label: the threshold of alarms (`_limit`), or a healthy value (`_guide`)."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of the dashboard, with an optional horizontal line."""

    title: str
    lines: Sequence[Line | Formula]
    unit: str
    mark: Mark | None
    stacked: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the dashboard: a question about the service, and graphs that answer it.

    Attributes:
        title: The question.
        text: A sentence that explains the question.
        advice: Which values are healthy, and what to do about others.
        rows: The graphs.
        totals: The totals shown above the graphs.
    """

    title: str
    text: str
    advice: str
    rows: Sequence[Sequence[Graph]]
    totals: Sequence[Line]


# Longer than the longest lease (15 minutes): orders wait while a lease is live.
_OLDEST_MESSAGE_SECONDS = 1200

# Events are published within a second or two, and abandoned after 23 hours: this is in between.
_LATE_EVENTS_MS = 300_000

# With more lost loans, 50 workers need more visits to the depot (11 a second, repeated) than its capacity of some 15. docs/lanes.md
_MAX_LOANS_LOST = 0.25

# Seconds after the grace of a hold.
_MAX_EXPIRY_DELAY_SECONDS = 10

_VISIBLE, _AGE = "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"
_CHANGES_AGE = Metric("IteratorAge", "Maximum", "functions/PublishEvents")
_MOVEMENTS_AGE = Metric("IteratorAge", "Maximum", "functions/RecordMovements")
_UNDELIVERABLE = Metric(_VISIBLE, "Maximum", "undeliverable events")

# SQS reports on a queue for six hours after the last request to it, and is up to 15 minutes late when a quiet queue becomes
# active. A dead letter remains in the queue, so its alarm keeps its state.
# docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
_A_MESSAGE_STAYS = When(0, silence=TreatMissingData.IGNORE)

# `monitoring.py` fills the gaps in DynamoDB's metrics with 0. They arrive late, so the newest periods may show a 0 despite
# throttling: docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html. The alarm clears while
# two real values are left, so the result of FILL without any value does not matter.
_THROTTLED = When(0, periods=5, breaching=3)

_RETURNS = "Its messages return after the visibility timeout."
_TOLD = "Its caller got an error, and can try again."
_AFTER_AN_ERROR = {
    "PlaceOrders": _RETURNS,
    "AdjustStock": _RETURNS,
    "ChangeOrders": _RETURNS,
    "ManageProducts": _RETURNS,
    "CountStock": _TOLD,
    "Sweep": "Until this is fixed, holds may not expire, units may stay in lanes, outbound pages may fill up, or events may not reach consumers.",
    "PublishEvents": "The stream delivers the same changes again, and later changes wait.",
    "RecordMovements": "The stream delivers the same changes again. Orders and events do not wait.",
    "Api": _TOLD,
    "ServeDesk": "The desk may not load. The API is not affected.",
}

ALARMS = (
    Alarm(
        "{name}DeadLetters",
        Metric(_VISIBLE, "Maximum", "dead letters"),
        _A_MESSAGE_STAYS,
        "Messages of {name} were dead-lettered: they can never succeed, or were delivered too often. First: read errorCode "
        "and errorMessage of the dead letters (inventory-orders status), which say what the sender has to fix.",
        basic=("OrderQueue", "OrderCommandQueue"),
    ),
    Alarm(
        "{name}OldestMessage",
        Metric(_AGE, "Maximum", "queues"),
        # Reported while a message waits and the queue is polled. If silence kept the state, it would outlast the outage.
        # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
        When(_OLDEST_MESSAGE_SECONDS, periods=3),
        "A message of {name} has been waiting for more than 20 minutes, longer than any lease. First: check whether the "
        "function runs (errors, throttles), then why messages are returned (code in its log).",
        basic=("OrderQueue",),
    ),
    Alarm(
        "MessagesDeadLettered",
        Metric("MessagesDeadLettered", "Sum", minutes=5),
        # It turns off, so that the next dead letter is mailed too. The queue's own alarm stays on until its dead letters are gone.
        When(0),
        "A handler has just dead-lettered messages that can never succeed unchanged. First: read errorCode and "
        "errorMessage of the dead letters (inventory-orders status), which say what the sender has to fix.",
    ),
    Alarm(
        "TimeSinceFirstReceive",
        Metric("TimeSinceFirstReceive", "Maximum", minutes=5),
        # A returned message comes back every 15 minutes, so two periods in a row may have no value, but one of four has.
        When(_OLDEST_MESSAGE_SECONDS, periods=4, breaching=1),
        "A message that was first received more than 20 minutes ago, longer than any lease, has been delivered again. First: "
        "read why messages are returned (code in the function's log).",
    ),
    Alarm(
        "ConflictRate",
        Metric("VersionConflict", "Average", minutes=5),
        When(0.05, periods=3),
        "In more than 5 % of the commit attempts, a concurrent writer was faster and the work was repeated. First: lower "
        "maximumConcurrency or raise batchSize of the queue in cdk.json.",
    ),
    Alarm(
        "RetriesExhausted",
        Metric("RetriesExhausted", "Average", minutes=5),
        When(0.01, periods=2),
        "More than 1 % of the retried changes ran out of attempts; their messages will be delivered again. First: look "
        "for throttled tables, then for a hot product (productId in the log).",
    ),
    Alarm(
        "LoansLost",
        Metric("LoansLost", "Average", minutes=5),
        When(_MAX_LOANS_LOST, periods=3),
        "In more than 25 % of the loans from products' rows, a concurrent writer was faster, so batches wait for the depot more "
        "than once. First: find the other program that writes these rows, and let it send messages to the queues instead.",
    ),
    Alarm(
        "CorruptPage",
        Metric("CorruptPage", "Sum", minutes=5),
        # As above: a message that needs a corrupt page comes back every 15 minutes.
        When(0, periods=4, breaching=1),
        "A page of the table Allotments cannot be read. Messages that need it come back until it is repaired. First: "
        "find out which page it is (see detail in the function's log).",
    ),
    Alarm(
        "UndeliverableEvents",
        _UNDELIVERABLE,
        _A_MESSAGE_STAYS,
        "Some events could not be published, so consumers do not receive them. First: read errorCode and errorMessage in "
        "UndeliverableEventsQueue. Fix the cause, then publish these orders again (inventory-orders republish).",
        basic=("undeliverable events",),
    ),
    Alarm(
        "PublishEventsIteratorAge",
        _CHANGES_AGE,
        When(_LATE_EVENTS_MS, periods=3),
        "Events are published more than 5 minutes late, because the bus refuses them or the function fails. Nothing is lost "
        "for 23 hours. First: find the reason in the log of PublishEvents (refusals).",
        basic=("PublishEvents",),
    ),
    Alarm(
        "UnrecordedMovements",
        Metric(_VISIBLE, "Maximum", "unrecorded movements"),
        _A_MESSAGE_STAYS,
        "Some movements could not be recorded, so histories lack them. First: read errorMessage in UnrecordedMovementsQueue, "
        "and repair these orders. Then run inventory-orders rebuild-movements, and delete the messages.",
    ),
    Alarm(
        "RecordMovementsIteratorAge",
        _MOVEMENTS_AGE,
        When(_LATE_EVENTS_MS, periods=3),
        "Movements are recorded more than 5 minutes late, so histories and the desk are behind. Orders and events are not affected. "
        "First: check whether Movements is throttled, then read the log of RecordMovements.",
    ),
    Alarm(
        "{name}Errors",
        Metric("Errors", "Sum", "functions"),
        When(0),
        "{name} raised an exception or timed out. {then} First: read the traceback in its log group.",
        _AFTER_AN_ERROR,
        # Errors of Api and PublishEvents show as Api5xx and PublishEventsIteratorAge.
        basic=("PlaceOrders", "ChangeOrders", "Sweep"),
    ),
    Alarm(
        "{name}Throttles",
        Metric("Throttles", "Sum", "functions"),
        When(0, periods=3),
        "{name} reached its own concurrency limit or the account's. First: compare this limit with the stack's needs (docs/reference.md, "
        "Concurrent executions).",
    ),
    Alarm(
        "{name}RecursiveInvocationsDropped",
        # A function with `RecursiveLoop: Allow` reports nothing, so an alarm on one means that the setting was changed.
        Metric("RecursiveInvocationsDropped", "Sum", "functions"),
        When(0),
        "Lambda's recursive loop detection mistook {name} for an endless loop and dropped an invocation. Its messages come "
        "back. First: check that the function's recursive loop detection still has the deployed setting.",
    ),
    Alarm(
        "{name}5xx",
        # ApiErrors reacts to a single exception. This alarm is for persistent errors, including error answers without an
        # exception, and requests that never reach the function.
        Metric("5xx", "Average", "api"),
        # AWS recommends this for REST APIs.
        # docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Best_Practice_Recommended_Alarms_AWS_Services.html
        When(0.05, periods=3),
        "More than 5 % of the requests to the HTTP API have been answered with 500 or 503 for three minutes. First: find "
        "the cause (code and error in its function's log, integrationError in the access log).",
        basic=("Api", "CustomerApi"),
    ),
    Alarm(
        "SweepSilence",
        Metric("Invocations", "Sum", "functions/Sweep", minutes=5),
        When(
            1,
            periods=3,
            silence=TreatMissingData.BREACHING,
            comparison=ComparisonOperator.LESS_THAN_THRESHOLD,
            # The deployment that creates the stack, and the three periods.
            warm_up_minutes=30,
        ),
        "The sweep has not run for a quarter of an hour, so holds do not expire, units stay in idle lanes, and outbound pages "
        "fill up: once all are full, no order can be handed over. "
        "First: check that its schedule is enabled.",
        basic=("Sweep",),
    ),
    # Limits of a key: docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
    *(
        Alarm(
            f"{{name}}{kind}Throttles",
            Metric(f"{kind}ThrottleEvents", "Sum", "tables"),
            _THROTTLED,
            f"DynamoDB throttles {kind.lower()}s of {{name}}; they are retried with backoff. First: check whether one key is "
            f"hot (its limit is {limit:,} {kind.lower()} units per second). Otherwise, set warmThroughput.{{name}} in cdk.json.",
        )
        for kind, limit in (("Read", 3_000), ("Write", 1_000))
    ),
    Alarm(
        "ProductsByLevelWriteThrottles",
        Metric("WriteThrottleEvents", "Sum", "indexes/byLevel"),
        _THROTTLED,
        "DynamoDB throttles the index byLevel, and with it the writes of Products. First: check how many products are listed or "
        "change their status per second, because each status is one key. If it is only a few, set warmThroughput.Products in "
        "cdk.json.",
    ),
    *(
        Alarm(
            f"OrdersB{index[1:]}WriteThrottles",
            Metric("WriteThrottleEvents", "Sum", f"indexes/{index}"),
            _THROTTLED,
            f"DynamoDB throttles the index {index}, and with it the writes of Orders. First: check {what}, set "
            "warmThroughput.Orders in cdk.json.",
        )
        for index, what in (
            ("byUser", "whether one user sends a great many orders. If not"),
            (
                "byExpiry",
                "how many holds start or end per second, because they share 32 keys. If it is only a few",
            ),
            (
                "byStatus",
                "how many orders change their status per second, because each status has 16 keys, or 64 for new orders. If it is "
                "only a few",
            ),
            (
                "byLatePayment",
                "how many payments arrive too late per second, because they share four keys. If it is only a few",
            ),
        )
    ),
)


# A contrast of at least 3:1 on light and dark pages.
_GREEN, RED, _ORANGE = "#2ca02c", "#d62728", "#dd6b0a"
_BLUE, _PURPLE, _GREY, _BROWN = "#1f77b4", "#9467bd", "#7f7f7f", "#a2665a"
_PINK, _OLIVE, _TEAL = "#d65fae", "#8f9010", "#1290a0"
PALETTE = (_BLUE, _ORANGE, _GREEN, _PURPLE, _BROWN, _GREY, _PINK, _OLIVE, _TEAL)
"""The colours of the lines of one graph."""


def _section(
    title: str, text: str, advice: str, *rows: Sequence[Graph], totals: Sequence[Line] = ()
) -> Section:
    return Section(title, text, advice, rows, totals)


def _limit(unit: str, *names: str, drawn: Callable[[float], float] = float) -> Mark:
    """Draw the threshold that several alarms share. Its label shows after how many periods each alarm turns on.

    Args:
        unit: The unit of the graph.
        names: The alarms' names in `ALARMS`.
        drawn: A function that converts a value of the alarms' metric to the unit of the graph.
    """
    alarms = [next(alarm for alarm in ALARMS if alarm.name == name) for name in names]
    value = round(drawn(alarms[0].when.threshold), 9)
    side = "above" if drawn(1) > drawn(0) else "below"
    return Mark(value, f"alarm {side} {value:,g} {unit} {', or '.join(map(_periods, alarms))}")


def _periods(alarm: Alarm) -> str:
    when = alarm.when
    many = "for" if when.breaching is None else f"in {when.breaching} of"
    return f"{many} {when.periods} periods of {alarm.metric.minutes} min"


def _guide(value: float, text: str) -> Mark:
    return Mark(value, f"{text} (no alarm)")


def _percent(rate: float) -> float:
    return 100 * rate


def _percent_without(rate: float) -> float:
    return 100 - 100 * rate


def _graph(
    title: str,
    *lines: Line | Formula,
    unit: str = "per period",
    mark: Mark | None = None,
    stacked: bool = False,
) -> Graph:
    return Graph(title, lines, unit, mark, stacked)


def _sum(name: str, label: str, color: str, of: str = "handlers") -> Line:
    return Line(Metric(name, "Sum", of), label, color)


def _each(name: str, statistic: str, of: str) -> Line:
    return Line(Metric(name, statistic, of))


def _spread(name: str, of: str = "handlers", **colors: str) -> list[Line]:
    """Draw a line for each of several statistics of a metric. Each label is a percentile, or a key of `_STATISTICS`."""
    return [
        Line(Metric(name, _STATISTICS.get(label, label), of), label, color)
        for label, color in colors.items()
    ]


_STATISTICS = {"average": "Average", "most": "Maximum", "latest": "Maximum"}


def _rate(expression: str, label: str, color: str, name: str) -> Formula:
    """Plot a rate as a percentage of attempts. The last name in the expression is the average of a metric that is 0 or 1."""
    average = Line(Metric(name, "Average"), expression.rpartition(" ")[2], color)
    return Formula(expression, label, color, [average])


def _write_units(of: str, label: str, color: str) -> Formula:
    """Draw the write units of a table or an index per placed order.

    CloudWatch counts an index separately from its table. Each gets a line of its own, because their sum would have no value
    whenever one of them has none.
    """
    units = _sum("ConsumedWriteCapacityUnits", label, color, of)
    return Formula(f"{label} / placed", f"for {label}", color, (_PLACED, units))


_REASONS = dict(
    zip(REASONS_OF_ORDERS, itertools.cycle((_ORANGE, _PURPLE, _GREY, _BLUE)), strict=False)
)
"""A colour for each reason to reject orders."""

_PLACED = _sum("OrdersPlaced", "placed", _GREEN)
_REJECTED = _sum("OrdersRejected", "rejected", _ORANGE)
_OTHER_ENDS = (
    _sum("OrdersReplayed", "replayed", _BLUE),
    _sum("MessagesReturned", "returned", _GREY),
    _sum("MessagesDeadLettered", "dead-lettered", RED),
)


_FLOW = _section(
    "Are orders flowing?",
    "Placing and rejecting orders are both healthy outcomes.",
    "If **age grows** and nothing is placed, see the platform section below. SQS leaves out messages delivered three times: "
    "**came back** is the time since their first delivery. **Dead letters** stay until you redrive or delete them: their "
    "`errorMessage` says what to fix.",
    (
        _graph("Orders", _PLACED, _REJECTED, _sum("OrdersAmended", "amended", _BLUE), stacked=True),
        _graph(
            "Rejected, by reason",
            *(
                _sum("OrdersRejected", reason, color, f"rejections/{reason}")
                for reason, color in _REASONS.items()
            ),
            stacked=True,
        ),
        _graph(
            "Other outcomes of messages",
            *_OTHER_ENDS,
            _sum("StaleEventsIgnored", "stale events", _PURPLE),
            _sum("StaleDeletesIgnored", "stale deletes", _BROWN),
        ),
    ),
    (
        _graph(
            "Age of the oldest message",
            _each(_AGE, "Maximum", "queues"),
            Line(Metric("TimeSinceFirstReceive", "Maximum"), "came back", RED),
            unit="seconds",
            mark=_limit("seconds", "{name}OldestMessage", "TimeSinceFirstReceive"),
        ),
        _graph("Waiting", _each(_VISIBLE, "Maximum", "queues"), unit="messages"),
        _graph("Dead letters", _each(_VISIBLE, "Maximum", "dead letters"), unit="messages"),
    ),
    (
        _graph(
            "Orders, by where they were decided",
            _sum("OrdersDirect", "by the API itself", _GREEN),
            _sum("OrdersExpress", "from the express queue", _ORANGE),
            _sum("OrdersQueued", "from the senders' queues", _BLUE),
            stacked=True,
        ),
        _graph(
            "Wait of callers for an order", *_spread("CallerWait", p50=_GREEN, p99=RED), unit="ms"
        ),
        _graph("Products that ran low", _sum("LowStock", "low or out of stock", _ORANGE)),
    ),
    totals=(_PLACED, _REJECTED, *_OTHER_ENDS),
)


def _life(grace: int) -> Section:
    """Build the section about confirmations and expiries. `grace` is the grace period of holds, in seconds."""
    latest = grace + _MAX_EXPIRY_DELAY_SECONDS
    return _section(
        "Are orders confirmed, or do they expire?",
        f"A hold expires on time if it expires **{grace} to {latest} s** after its end: the first {grace} s are for late "
        "payments.",
        "If holds expire later, check the sweep, and the age of messages in ExpiryQueue. While a great many commands wait, holds "
        "do not expire, since a payment may be among the commands. **Late payments** are orders to refund: their rows say why.",
        (
            _graph(
                "Steps",
                _sum("OrdersConfirmed", "confirmed", _GREEN),
                _sum("OrdersFulfilled", "fulfilled", _BLUE),
                _sum("OrdersCancelled", "cancelled", _GREY),
                _sum("OrdersExpired", "expired", _ORANGE),
                _sum("OrdersReturned", "returns", _PURPLE),
            ),
            _graph(
                "Delay from the end of a hold to its expiry",
                *_spread("ExpiryDelay", p50=_GREEN, p99=_ORANGE, latest=RED),
                unit="seconds",
                mark=_guide(latest, f"p99 healthy below {latest} s"),
            ),
            _graph("Late payments", _sum("ConfirmationsRejected", "to refund", RED)),
        ),
    )


_EVENTS = _section(
    "Do consumers get events?",
    "Events of orders and products are published on the bus, in sequence per order.",
    "If **changes get older** and events are refused, check the bus. **Undeliverable** events stay in their queue: consumers "
    "do not receive them until you publish them again.",
    (
        _graph(
            "Events",
            _sum("EventsPublished", "published", _GREEN),
            _sum("EventsRefused", "refused, sent again", _ORANGE),
            _sum("EventsUndeliverable", "undeliverable", RED),
        ),
        _graph(
            "From the outcome to its publication",
            *_spread("EventDelay", p50=_GREEN, p99=RED),
            unit="ms",
        ),
        _graph(
            "Age of the changes",
            Line(_CHANGES_AGE, "for events", _ORANGE),
            Line(_MOVEMENTS_AGE, "for movements", _BLUE),
            unit="ms",
            mark=_limit("ms", "PublishEventsIteratorAge"),
        ),
        _graph("Undeliverable events", Line(_UNDELIVERABLE, "to fix", RED), unit="messages"),
    ),
)

_REQUESTS = _section(
    "Does the API answer?",
    "4xx are normal answers: a rejected order, an invalid body, a missing permission, or **429** beyond the limit `apiLimits`.",
    "For **5xx**, read the function's log. Both latencies include the time, up to 25 s, that callers wait for orders. Their "
    "difference is API Gateway's share.",
    (
        _graph(
            "Requests to the API",
            _sum("Count", "requests", _GREEN, "api"),
            _sum("4xx", "4xx", _ORANGE, "api"),
            _sum("5xx", "5xx", RED, "api"),
        ),
        _graph("Latency of the API", *_spread("Latency", "api", p50=_GREEN, p99=RED), unit="ms"),
        _graph(
            "Latency of its function",
            *_spread("IntegrationLatency", "api", p50=_GREEN, p99=RED),
            unit="ms",
        ),
    ),
)

_CONTENTION = _section(
    "Is there contention?",
    "Contention means that several writers want to change the same row.",
    "Healthy: **conflicts under 5 %, under 0.5 retries on average, 99 % of retried changes succeed**. Above 5 %: use fewer "
    "writers with fuller batches (`maximumConcurrency`, `batchSize`).",
    (
        _graph(
            "Conflict rate",
            _rate("100 * rate", "of attempts", RED, "VersionConflict"),
            unit="%",
            mark=_limit("%", "ConflictRate", drawn=_percent),
        ),
        _graph(
            "Retries of a change",
            *_spread("Retries", average=_BLUE, p95=_PURPLE),
            unit="retries",
            mark=_guide(0.5, "average healthy below 0.5"),
        ),
        _graph(
            "Retries that succeed",
            _rate("100 - 100 * exhausted", "of retried changes", _GREEN, "RetriesExhausted"),
            unit="%",
            mark=_limit("%", "RetriesExhausted", drawn=_percent_without),
        ),
    ),
    (
        _graph(
            "Time spent waiting",
            Line(Metric("RetryBackoffTime", "Average"), "backoff, average", _ORANGE),
            Line(Metric("RetryBackoffTime", "p95"), "backoff, p95", RED),
            Line(Metric("LeaseWait", "Average"), "for leases, average", _BLUE),
            unit="ms",
        ),
        _graph(
            "Failed conditions (DynamoDB)", _each("ConditionalCheckFailedRequests", "Sum", "tables")
        ),
        _graph(
            "Transaction conflicts",
            _each("TransactionConflict", "Sum", "tables"),
            _sum("TransactionConflict", "seen by handlers", RED),
        ),
    ),
)

_LANES = _section(
    "Do lanes help?",
    "Orders that find all units in **their worker's own lane** meet no concurrent writers.",
    "For missing units, the worker visits the **depot**, which one worker at a time fills from rows. Healthy: most orders "
    "come from lanes, almost no loans are lost, waits are short. **Recalls and long waits** are signs of scarce stock.",
    (
        _graph(
            "Orders served by the worker's own lane",
            _rate("100 * own", "of placed orders", _GREEN, "OrdersFromLanes"),
            unit="%",
        ),
        _graph(
            "Loans lost to concurrent writers",
            _rate("100 * lost", "of loans", RED, "LoansLost"),
            unit="%",
            mark=_limit("%", "LoansLost", drawn=_percent),
        ),
        _graph(
            "Wait for the depot",
            *_spread("DepotWait", average=_BLUE, p99=_PURPLE),
            unit="ms",
        ),
    ),
    (
        _graph(
            "Visits to the depot, by reason",
            Line(Metric("DepotWait", "SampleCount"), "visits", _BLUE),
            _sum("Loans", "rows that lent", _GREEN),
            _sum("Recalls", "recalls", _ORANGE),
        ),
        _graph("Units lent", _sum("UnitsLent", "from rows", _GREEN)),
        _graph("Blocked by a corrupt page", _sum("CorruptPage", "messages", RED)),
    ),
)

_EFFICIENCY = _section(
    "How efficient is it?",
    "One transaction can place 99 orders for one product.",
    "**Few orders per transaction** under load: batches are too small (raise `batchWindowSeconds`), or orders share no products.",
    (
        _graph(
            "Orders per transaction",
            *_spread("OrdersPerTransaction", average=_BLUE, most=_GREY),
            unit="orders",
        ),
        _graph("Commit attempts", _sum("ConditionalWrites", "transactions sent", _PURPLE)),
        _graph(
            "Capacity",
            _write_units("tables/Orders", "orders", _BLUE),
            _write_units("indexes/byUser", "byUser", _GREY),
            _write_units("indexes/byStatus", "byStatus", _TEAL),
            _write_units("tables/Products", "products", _ORANGE),
            _write_units("tables/Allotments", "lanes", _GREEN),
            unit="write units per placed order",
            stacked=True,
        ),
        _graph(
            "Commit latency", *_spread("CommitLatency", p50=_GREEN, p95=_ORANGE, p99=RED), unit="ms"
        ),
    ),
)

_PLATFORM = _section(
    "Is the platform healthy?",
    "**Errors** are bugs or timeouts: read the function's log.",
    "**Throttles** show a limit: for Lambda the account's concurrency, for DynamoDB a hot key or a table that is not warm yet.",
    (
        _graph("Errors", _each("Errors", "Sum", "functions")),
        _graph("Throttles", _each("Throttles", "Sum", "functions")),
        _graph("Duration, p95", _each("Duration", "p95", "functions"), unit="ms"),
        _graph(
            "Concurrent invocations",
            _each("ConcurrentExecutions", "Maximum", "functions"),
            unit="invocations",
        ),
    ),
    (
        _graph("Writes throttled by DynamoDB", _each("WriteThrottleEvents", "Sum", "tables")),
        _graph("Reads throttled by DynamoDB", _each("ReadThrottleEvents", "Sum", "tables")),
    ),
)


def sections(hold_grace_seconds: int, *, api: bool) -> list[Section]:
    """List the sections of the dashboard, in the order in which an operator would ask these questions."""
    return [
        _FLOW,
        _life(hold_grace_seconds),
        _EVENTS,
        *([_REQUESTS] if api else []),
        _CONTENTION,
        _LANES,
        _EFFICIENCY,
        _PLATFORM,
    ]
