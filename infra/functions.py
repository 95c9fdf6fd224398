"""The Lambda functions, the layer that they share, and their permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Annotations, Aws, Duration, Names, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import assets
from infra.events import Events
from infra.queues import QueuePair, Queues
from infra.removal import kept_in_production
from infra.settings import Settings
from infra.tables import Tables

LIVE = "live"
"""Alias of the version that callers reach. A deployment moves it once code, layer and settings of a version are ready."""


class Functions(Construct):
    """One function for each folder in functions/, each with its own role, log group and alias.

    Attributes:
        live: The aliases by the functions' construct ids. Queues, streams, the schedule and the API call these.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: Settings,
        tables: Tables,
        queues: Queues,
        events: Events,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._tables = tables
        self.live: dict[str, lambda_.Alias] = {}
        self._runtime = lambda_.Runtime(settings.runtime, lambda_.RuntimeFamily.PYTHON)
        self._architecture = (
            lambda_.Architecture.ARM_64
            if settings.architecture == "arm64"
            else lambda_.Architecture.X86_64
        )
        layer = assets.layer(settings.runtime)
        self._layer = lambda_.LayerVersion(
            self,
            "CoreLayer",
            description="The code of the inventory and order service, and its dependencies",
            code=lambda_.Code.from_asset(str(layer.path), asset_hash=layer.digest),
            compatible_runtimes=[self._runtime],
            compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
        )
        if not layer.compiled:
            Annotations.of(self._layer).add_warning_v2(
                "inventory-orders:notCompiled",
                f"this machine has no {settings.runtime}, so the code is deployed without bytecode: every cold start "
                f"compiles it, which about doubles the time for imports. Install {settings.runtime} (it may be on the "
                "PATH, or in pyenv) wherever you deploy from: a machine that has it deploys all functions again",
            )
        self.place_orders = self._function(
            "place_orders",
            "PlaceOrders",
            "Places orders from both order queues, in batches",
            {
                "OrderQueue": queues.orders,
                "OrderQueueFifo": queues.orders_fifo,
            },
        )
        self.place_orders.add_environment("LANES", str(settings.lanes))
        if settings.hold_seconds is not None:
            self.place_orders.add_environment("HOLD_SECONDS", str(settings.hold_seconds))
        self._allow(self.place_orders, tables.products, ["BatchGetItem", "UpdateItem"])
        # UpdateItem: if the cancellation came first, the order fills in its tombstone.
        # GetItem: to tell who places one order directly where it stands.
        self._allow(
            self.place_orders,
            tables.orders,
            ["BatchGetItem", "GetItem", "PutItem", "UpdateItem"],
        )
        self._allow(self.place_orders, tables.allotments, _USE_LANES)

        self.adjust_stock = self._function(
            "adjust_stock",
            "AdjustStock",
            "Applies receipts, corrections, returns and plain decrements",
            {"StockQueue": queues.stock},
        )
        self._allow(self.adjust_stock, tables.products, ["BatchGetItem", "GetItem", "UpdateItem"])
        self._allow(self.adjust_stock, tables.stock_adjustments, ["BatchGetItem", "PutItem"])
        self._allow(self.adjust_stock, tables.allotments, _USE_LANES)

        self.change_orders = self._function(
            "change_orders",
            "ChangeOrders",
            "Confirms, fulfils, cancels, returns and expires orders",
            {"OrderCommandQueue": queues.commands, "ExpiryQueue": queues.expiries},
        )
        self._allow(self.change_orders, tables.products, ["BatchGetItem", "UpdateItem"])
        self._allow(
            self.change_orders,
            tables.orders,
            ["BatchGetItem", "GetItem", "PutItem", "UpdateItem"],
        )

        self.manage_products = self._function(
            "manage_products",
            "ManageProducts",
            "Lists, changes, discontinues and delists products",
            {"CatalogueQueue": queues.catalogue},
        )
        self._allow(
            self.manage_products,
            tables.products,
            ["BatchGetItem", "GetItem", "PutItem", "UpdateItem", "DeleteItem"],
        )
        self._allow(self.manage_products, tables.stock_adjustments, ["PutItem"])
        self._allow(self.manage_products, tables.allotments, _USE_LANES)

        self.count_stock = self._function(
            "count_stock", "CountStock", "Counts stock under a lease", {}
        )
        self._allow(self.count_stock, tables.products, ["BatchGetItem", "GetItem", "UpdateItem"])
        self._allow(self.count_stock, tables.stock_adjustments, ["GetItem", "PutItem"])
        self._allow(self.count_stock, tables.allotments, _USE_LANES)

        self.sweep = self._function(
            "sweep",
            "Sweep",
            "Sends holds that are about to end, and brings home the units in lanes that nobody uses",
            {},
        )
        self._name(self.sweep, queues.expiries, _PREFIXES["ExpiryQueue"])
        self.sweep.add_to_role_policy(
            iam.PolicyStatement(
                actions=["sqs:GetQueueAttributes", "sqs:SendMessage"],
                resources=[queues.expiries.queue.queue_arn],
            )
        )
        self.sweep.add_to_role_policy(
            iam.PolicyStatement(
                actions=["dynamodb:Query"],
                resources=[f"{tables.orders.table_arn}/index/byExpiry"],
            )
        )
        self._allow(self.sweep, tables.products, ["BatchGetItem", "UpdateItem"])
        self._allow(self.sweep, tables.allotments, _USE_LANES)
        for function in (self.change_orders, self.sweep):
            function.add_environment("HOLD_GRACE_SECONDS", str(settings.hold_grace_seconds))
        self.sweep_schedule = self._every_minute("Sweep", {"action": "sweep"})

        self.api = self._api(queues) if settings.api else None

        self.publish_events = self._function(
            "publish_events", "PublishEvents", "Announces what became of orders and products", {}
        )
        mappings = events.announce(
            self.publish_events,
            self.live["PublishEvents"],
            queues.undeliverable_events,
            tables.orders,
            tables.products,
        )
        self._watch(self.sweep, mappings, [tables.orders, tables.products])

    @property
    def all(self) -> dict[str, lambda_.Function]:
        """The functions by construct id."""
        return {
            "PlaceOrders": self.place_orders,
            "AdjustStock": self.adjust_stock,
            "ChangeOrders": self.change_orders,
            "ManageProducts": self.manage_products,
            "CountStock": self.count_stock,
            "Sweep": self.sweep,
            "PublishEvents": self.publish_events,
        } | ({} if self.api is None else {"Api": self.api})

    def _watch(
        self,
        function: lambda_.Function,
        mappings: Sequence[lambda_.EventSourceMapping],
        tables: Sequence[dynamodb.TableV2],
    ) -> None:
        """Have a function look whether the streams of tables are read."""
        ids = " ".join(mapping.event_source_mapping_id for mapping in mappings)
        function.add_environment("STREAM_MAPPINGS", ids)
        for table in tables:
            self._allow(function, table, ["DescribeTable"])
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["lambda:GetEventSourceMapping"],
                resources=[
                    cast(
                        "lambda_.CfnEventSourceMapping", mapping.node.default_child
                    ).attr_event_source_mapping_arn
                    for mapping in mappings
                ],
            )
        )

    def _api(self, queues: Queues) -> lambda_.Function:
        settings, tables = self._settings, self._tables
        reserved = settings.api_limits.concurrentExecutions
        function = self._function("api", "Api", "Answers the HTTP API", {}, reserved)
        function.add_environment("ORDER_QUEUE_URL", queues.orders.queue.queue_url)
        function.add_environment("CALLERS", "iam" if settings.jwt is None else "jwt")
        function.add_environment("SHOW_STOCK", settings.show_stock)
        if settings.jwt is not None and settings.jwt.operators_claim is not None:
            name, value = settings.jwt.operators_claim
            function.add_environment("OPERATORS_CLAIM_NAME", name)
            function.add_environment("OPERATORS_CLAIM_VALUE", value)
        if settings.hold_seconds is not None:
            function.add_environment("HOLD_SECONDS", str(settings.hold_seconds))
        self._allow(function, tables.products, ["BatchGetItem", "UpdateItem"])
        self._allow(function, tables.orders, ["BatchGetItem", "GetItem", "PutItem", "UpdateItem"])
        for action, resource in (
            ("dynamodb:Query", f"{tables.orders.table_arn}/index/byUser"),
            ("sqs:SendMessage", queues.orders.queue.queue_arn),
        ):
            function.add_to_role_policy(iam.PolicyStatement(actions=[action], resources=[resource]))
        return function

    def _function(
        self,
        name: str,
        construct_id: str,
        description: str,
        sources: Mapping[str, QueuePair],
        reserved: int | None = None,
    ) -> lambda_.Function:
        settings = self._settings.functions[name]
        log_group = logs.LogGroup(
            self,
            f"{construct_id}Logs",
            retention=RETENTION[self._settings.log_retention_days],
            removal_policy=kept_in_production(self._settings),
        )
        role = iam.Role(
            self,
            f"{construct_id}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"The permissions of {name}",
        )
        log_group.grant_write(role)
        code = assets.function(name, self._settings.runtime)
        function = lambda_.Function(
            self,
            construct_id,
            description=description,
            runtime=self._runtime,
            architecture=self._architecture,
            handler="handler.lambda_handler",
            code=lambda_.Code.from_asset(str(code.path), asset_hash=code.digest),
            layers=[self._layer],
            role=role,
            log_group=log_group,
            memory_size=settings.memoryMegabytes,
            timeout=Duration.seconds(settings.timeoutSeconds),
            reserved_concurrent_executions=reserved,
            # With it, the CDK lets the role send its segments: xray:PutTraceSegments, xray:PutTelemetryRecords.
            tracing=lambda_.Tracing.ACTIVE if self._settings.tracing else lambda_.Tracing.DISABLED,
            environment={
                "PRODUCTS_TABLE_NAME": self._tables.products.table_name,
                "ORDERS_TABLE_NAME": self._tables.orders.table_name,
                "STOCK_ADJUSTMENTS_TABLE_NAME": self._tables.stock_adjustments.table_name,
                "ALLOTMENTS_TABLE_NAME": self._tables.allotments.table_name,
                "POWERTOOLS_SERVICE_NAME": self._settings.service_name,
                "POWERTOOLS_LOG_LEVEL": self._settings.log_level,
            },
            # Earlier versions stay, to go back to. That of a deployment which fails has to go: Lambda publishes none that
            # equals the last one, so the next attempt would fail.
            # docs.aws.amazon.com/lambda/latest/api/API_PublishVersion.html
            current_version_options=lambda_.VersionOptions(
                removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
            ),
        )
        self.live[construct_id] = function.add_alias(LIVE)
        for queue_name, pair in sources.items():
            prefix = _PREFIXES.get(queue_name, "")
            self._feed(function, self.live[construct_id], queue_name, pair, prefix)
        return function

    def _feed(
        self,
        function: lambda_.Function,
        live: lambda_.Alias,
        queue_name: str,
        pair: QueuePair,
        prefix: str,
    ) -> None:
        settings = self._settings.queues[queue_name]
        self._name(function, pair, prefix)
        lambda_.EventSourceMapping(
            function,
            # The id that the CDK's own SqsEventSource uses. With another id, an update would create a second mapping
            # of the queue before it deletes the first, and Lambda does not allow two.
            f"SqsEventSource:{Names.node_unique_id(pair.queue.node)}",
            target=live,
            event_source_arn=pair.queue.queue_arn,
            batch_size=settings.batchSize,
            max_batching_window=(
                Duration.seconds(settings.batchWindowSeconds)
                if settings.batchWindowSeconds
                else None
            ),
            max_concurrency=settings.maximumConcurrency,
            report_batch_item_failures=True,
        )
        actions = [*_CONSUME, "sqs:SendMessage"] if queue_name in _SENT_AGAIN else _CONSUME
        function.add_to_role_policy(
            iam.PolicyStatement(actions=actions, resources=[pair.queue.queue_arn])
        )
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"], resources=[pair.dead_letters.queue_arn]
            )
        )

    @staticmethod
    def _name(function: lambda_.Function, pair: QueuePair, prefix: str) -> None:
        """Tell a function where a queue is."""
        function.add_environment(f"{prefix}QUEUE_URL", pair.queue.queue_url)
        function.add_environment(f"{prefix}DEAD_LETTER_QUEUE_URL", pair.dead_letters.queue_url)

    def _every_minute(self, construct_id: str, event: Mapping[str, str]) -> scheduler.CfnSchedule:
        """Invoke a function once a minute. What fails is not repeated: the next minute comes."""
        live = self.live[construct_id]
        role = iam.Role(
            self,
            f"{construct_id}ScheduleRole",
            # docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description=f"Lets the schedule invoke {construct_id}",
        )
        role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[live.function_arn])
        )
        # It invokes asynchronously, so Lambda too would repeat what fails.
        # docs.aws.amazon.com/lambda/latest/dg/with-eventbridge-scheduler.html
        live.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(1))
        return scheduler.CfnSchedule(
            self,
            f"{construct_id}Schedule",
            description=f"Invokes {construct_id} once a minute",
            schedule_expression="rate(1 minute)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=live.function_arn,
                role_arn=role.role_arn,
                input=json.dumps(event),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=60
                ),
            ),
        )

    def _allow(
        self, function: lambda_.Function, table: dynamodb.TableV2, operations: Sequence[str]
    ) -> None:
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=[f"dynamodb:{operation}" for operation in operations],
                resources=[table.table_arn],
            )
        )


# To take units from lanes, or to bring them home: pages and leases are read together, written by updates, and checked.
_USE_LANES = ["BatchGetItem", "UpdateItem", "ConditionCheckItem"]

# Lambda's poller needs the first three: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html. The CDK's
# own grant adds one that is not needed.
_CONSUME = [
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    # The handler delays returned messages.
    "sqs:ChangeMessageVisibility",
]

# Their messages may be early: one that has waited for long is sent again, so that SQS counts its deliveries anew.
_SENT_AGAIN = {"StockQueue", "CatalogueQueue", "OrderCommandQueue", "ExpiryQueue"}

# Of the environment variables that name a queue, where a function knows two.
_PREFIXES = {"OrderQueueFifo": "FIFO_", "ExpiryQueue": "EXPIRY_"}

RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}
