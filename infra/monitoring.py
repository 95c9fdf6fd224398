"""Builds the alarms, their e-mail notifications, and the dashboard from `watched.py`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import cast

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from inventory_orders.domain.rejection import REASONS_OF_ORDERS
from inventory_orders.store.tables import INDEXES

from . import watched
from .api import Api
from .functions import Functions
from .queues import Queues
from .settings import Settings
from .tables import Tables

Thing = tuple[str, Mapping[str, str]]
"""A source of metrics: their namespace and dimensions."""

Things = Mapping[str, Mapping[str, Thing]]
"""All sources of metrics, by kind and by name."""

NAMESPACE = "InventoryOrders"
RUNBOOK = "docs/runbook.md"

_MINUTE = Duration.minutes(1)
_COLUMNS = 24


def list_things(
    settings: Settings,
    tables: Tables,
    queues: Queues,
    functions: Functions,
    apis: Mapping[str, Api],
) -> Things:
    """List the sources of metrics. The handlers' own metrics have the dimension `service`."""
    service = {"service": settings.service_name}
    return {
        "handlers": {"handlers": (NAMESPACE, service)},
        "rejections": {
            reason: (NAMESPACE, service | {"reason": reason}) for reason in REASONS_OF_ORDERS
        },
        "queues": {name: _queue(pair.queue) for name, pair in queues.all.items()},
        "dead letters": {name: _queue(pair.dead_letters) for name, pair in queues.all.items()},
        "undeliverable events": {"undeliverable events": _queue(queues.undeliverable_events)},
        "unrecorded movements": {}
        if queues.unrecorded_movements is None
        else {"unrecorded movements": _queue(queues.unrecorded_movements)},
        # All versions and aliases together: docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics.html
        "functions": {
            name: ("AWS/Lambda", {"FunctionName": function.function_name})
            for name, function in functions.all.items()
        },
        "tables": {
            name: ("AWS/DynamoDB", {"TableName": table.table_name})
            for name, table in tables.all.items()
        },
        "indexes": {
            index.name: (
                "AWS/DynamoDB",
                {"TableName": tables.all[table].table_name, "GlobalSecondaryIndexName": index.name},
            )
            for table in tables.all
            for index in INDEXES.get(table, ())
        },
        # docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
        "api": {
            name: ("AWS/ApiGateway", {"ApiId": api.http_api.ref}) for name, api in apis.items()
        },
    }


def _queue(queue: sqs.Queue) -> Thing:
    return "AWS/SQS", {"QueueName": queue.queue_name}


class Monitoring(Construct):
    """The alarms and the dashboard of one stage.

    Attributes:
        dashboard: None with the setting `monitoring: basic`.
    """

    def __init__(
        self, scope: Construct, construct_id: str, settings: Settings, things: Things
    ) -> None:
        super().__init__(scope, construct_id)
        self._things = things
        self._stack_name = settings.stack_name
        is_full = settings.monitoring == "full"
        alarms = [
            self._alarm(alarm, name, thing)
            for alarm in watched.ALARMS
            for name, thing in self._find(alarm.metric).items()
            if is_full or name in alarm.basic
        ]
        if settings.alarm_email:
            self._mail(alarms, settings.alarm_email)
        self.dashboard = self._draw(settings, alarms) if is_full else None

    def _find(self, metric: watched.Metric) -> Mapping[str, Thing]:
        """Find the sources of a metric by name."""
        kind, _, name = metric.of.partition("/")
        found = self._things[kind]
        # Without the setting `movements`, its function does not exist.
        return {each: thing for each, thing in found.items() if name in ("", each)}

    def _alarm(self, alarm: watched.Alarm, name: str, thing: Thing) -> cloudwatch.Alarm:
        then = alarm.then[name] if alarm.then else ""
        title = alarm.name.format(name=name)
        built = cloudwatch.Alarm(
            self,
            title,
            # Construct and alarm share the title. If only the construct were renamed, CloudFormation would try to create an
            # alarm with a name that already exists.
            alarm_name=f"{self._stack_name}-{title}",
            metric=_without_gaps(alarm.metric, thing),
            threshold=alarm.when.threshold,
            comparison_operator=alarm.when.comparison,
            evaluation_periods=alarm.when.periods,
            datapoints_to_alarm=alarm.when.breaching or alarm.when.periods,
            treat_missing_data=alarm.when.silence,
            alarm_description=f"{alarm.text.format(name=name, then=then)} More: {RUNBOOK}",
        )
        if alarm.when.warm_up_minutes:
            # The CDK's own class lacks this property.
            resource = cast("cloudwatch.CfnAlarm", built.node.default_child)
            resource.warm_up_configuration = cloudwatch.CfnAlarm.WarmUpConfigurationProperty(
                warm_up_period_duration_in_minutes=alarm.when.warm_up_minutes
            )
        return built

    def _mail(self, alarms: list[cloudwatch.Alarm], address: str) -> None:
        """Send an e-mail when an alarm fires, and when it clears."""
        topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        # `enforce_ssl` gives the topic a policy that replaces the default policy. Without this statement,
        # CloudWatch may not publish, and no mail is sent. docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html
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
        topic.add_subscription(subscriptions.EmailSubscription(address))
        for alarm in alarms:
            alarm.add_alarm_action(actions.SnsAction(topic))
            alarm.add_ok_action(actions.SnsAction(topic))

    def _draw(self, settings: Settings, alarms: list[cloudwatch.Alarm]) -> cloudwatch.Dashboard:
        dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            # Names of dashboards are unique in an account, names of stacks only in a region.
            dashboard_name=f"InventoryOrders-{settings.stage}-{Aws.REGION}",
            default_interval=Duration.hours(3),
        )
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(alarms=alarms, title="Alarms", width=_COLUMNS, height=8)
        )
        for section in watched.sections(settings.hold_grace_seconds, api=settings.api):
            self._show(section, dashboard)
        return dashboard

    def _show(self, section: watched.Section, dashboard: cloudwatch.Dashboard) -> None:
        # CloudWatch shows one paragraph, because the height is fixed. The local page folds the advice.
        markdown = f"## {section.title}\n{section.text}\n{section.advice}"
        dashboard.add_widgets(cloudwatch.TextWidget(markdown=markdown, width=_COLUMNS, height=2))
        if section.totals:
            dashboard.add_widgets(
                cloudwatch.SingleValueWidget(
                    title="In this period",
                    metrics=[metric for line in section.totals for metric in self._lines(line)],
                    width=_COLUMNS,
                    height=3,
                    set_period_to_time_range=True,
                )
            )
        for row in section.rows:
            width = _COLUMNS // len(row)
            dashboard.add_widgets(*(self._graph(graph, width) for graph in row))

    def _graph(self, graph: watched.Graph, width: int) -> cloudwatch.GraphWidget:
        marks = []
        if graph.mark is not None:
            mark = graph.mark
            marks = [
                cloudwatch.HorizontalAnnotation(
                    value=mark.value, label=mark.label, color=watched.RED
                )
            ]
        return cloudwatch.GraphWidget(
            title=graph.title,
            left=[metric for line in graph.lines for metric in self._drawn(line)],
            width=width,
            height=6,
            stacked=graph.stacked,
            left_y_axis=cloudwatch.YAxisProps(label=graph.unit, min=0, show_units=False),
            left_annotations=marks,
            legend_position=cloudwatch.LegendPosition.BOTTOM,
        )

    def _drawn(self, line: watched.Line | watched.Formula) -> list[cloudwatch.IMetric]:
        if isinstance(line, watched.Line):
            return [*self._lines(line)]
        using = {used.label: metric for used in line.using for metric in self._lines(used)}
        return [
            cloudwatch.MathExpression(
                expression=line.expression,
                using_metrics=using,
                label=line.label,
                color=line.color,
                period=_MINUTE,
            )
        ]

    def _lines(self, line: watched.Line) -> list[cloudwatch.Metric]:
        return [
            _metric(line.metric, thing, line.label or name, line.color or color)
            for (name, thing), color in zip(
                self._find(line.metric).items(), cycle(watched.PALETTE), strict=False
            )
        ]


def _without_gaps(metric: watched.Metric, thing: Thing) -> cloudwatch.IMetric:
    """Build the metric of an alarm. Gaps in DynamoDB's metrics are filled, because the alarm might otherwise never clear.

    AWS's pages disagree on whether `TreatMissingData` applies to DynamoDB's metrics:
    docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html,
    docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
    """
    # A label would turn it into metric math.
    plain = _metric(metric, thing)
    namespace, _ = thing
    if namespace != "AWS/DynamoDB":
        return plain
    return cloudwatch.MathExpression(
        expression="FILL(metric, 0)",
        using_metrics={"metric": plain},
        period=Duration.minutes(metric.minutes),
    )


def _metric(
    metric: watched.Metric, thing: Thing, label: str | None = None, color: str | None = None
) -> cloudwatch.Metric:
    namespace, dimensions = thing
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=metric.name,
        dimensions_map=dimensions,
        statistic=metric.statistic,
        label=label,
        color=color,
        period=Duration.minutes(metric.minutes),
    )
