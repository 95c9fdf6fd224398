"""The Lambda functions, their shared layer, and their permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from aws_cdk import Annotations, Aws, Duration, Names, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from inventory_orders.store.tables import Table

from . import assets
from .currencies import DIGITS
from .desk import CONCURRENT_EXECUTIONS
from .desk_files import answers_file
from .events import Events
from .permissions import allow
from .queues import QueuePair, Queues
from .removal import kept_in_production
from .settings import FunctionSettings, Settings
from .tables import Tables

# docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html
_ENDING_RUNTIME = "python3.11"

LIVE = "live"
"""The alias that callers invoke. A deployment moves it once code, layer and settings of a version are ready."""


# To sell from lanes or reclaim units, functions read pages and leases together, update them, and check them.
_USE_LANES = "BatchGetItem UpdateItem ConditionCheckItem"

# UpdateItem: if the cancellation arrived first, the order replaces its tombstone. GetItem: to judge a single order.
_WRITE_ORDERS = "BatchGetItem GetItem PutItem UpdateItem"

# GetItem: to read the rows of several locations in one transaction. ConditionCheckItem: if that read keeps conflicting.
_PROVE_REJECTIONS = "GetItem ConditionCheckItem"

_COUNT_PURCHASES = f"{_PROVE_REJECTIONS} BatchGetItem UpdateItem"


@dataclass(frozen=True, slots=True)
class _Function:
    """What the stack needs to know about a Lambda function before creating it.

    Attributes:
        name: The name of the function's folder in functions/.
        description: What the function does.
        tables: The function's permissions on each table or index (`Orders/byUser`).
        fed_by: The queues that invoke the function.
        settings: The function's environment variables, in addition to the common ones.
        alone: Memory and timeout of a function that needs neither the layer nor environment variables; otherwise None.
    """

    name: str
    description: str
    tables: Mapping[str, str] = field(default_factory=dict)
    fed_by: Sequence[str] = ()
    settings: Sequence[str] = ()
    alone: FunctionSettings | None = None


_PLACE_ORDERS, _SWEEP, _PUBLISH_EVENTS, _API = "PlaceOrders", "Sweep", "PublishEvents", "Api"
_RECORD_MOVEMENTS, _SERVE_DESK = "RecordMovements", "ServeDesk"

_CALLERS = (
    *("USER_ID_CLAIM", "OPERATORS_CLAIM_NAME", "OPERATORS_CLAIM_VALUE"),
    *("ROLES", "SHOW_STOCK"),
)
"""Variables of the functions that answer the HTTP API: who may call it, and for what."""

_LANES = ("LANES", "API_LANES")
"""Variables of the functions that sell from lanes."""

_DEFAULTS_OF_ORDERS = ("HOLD_SECONDS", "LOCATIONS", "BUYERS_DEFAULT")
"""Variables of the functions that read orders: defaults for fields that an order leaves out."""

_FUNCTIONS = {
    _PLACE_ORDERS: _Function(
        "place_orders",
        "Places orders from the order queues, in batches",
        {
            "Products": f"{_PROVE_REJECTIONS} BatchGetItem UpdateItem",
            "Orders": _WRITE_ORDERS,
            "Allotments": _USE_LANES,
            "Purchases": _COUNT_PURCHASES,
        },
        fed_by=("OrderQueue", "OrderQueueFifo", "OrderQueueExpress"),
        settings=(*_LANES, *_DEFAULTS_OF_ORDERS),
    ),
    "AdjustStock": _Function(
        "adjust_stock",
        "Applies receipts, corrections, returns and plain decrements",
        {
            "Products": "BatchGetItem GetItem UpdateItem",
            "StockAdjustments": "BatchGetItem GetItem PutItem",
            "Allotments": _USE_LANES,
        },
        fed_by=("StockQueue",),
        settings=_CALLERS,
    ),
    "ChangeOrders": _Function(
        "change_orders",
        "Confirms, fulfils, cancels, returns and expires orders",
        {
            "Products": "BatchGetItem UpdateItem",
            "Orders": _WRITE_ORDERS,
            "Allotments": _USE_LANES,
            # An order that is cancelled or expires frees what it used of purchase limits.
            "Purchases": "UpdateItem",
        },
        fed_by=("OrderCommandQueue", "ExpiryQueue"),
        settings=("HOLD_GRACE_SECONDS",),
    ),
    "ManageProducts": _Function(
        "manage_products",
        "Lists, changes, discontinues and delists products",
        {
            "Products": "BatchGetItem GetItem PutItem UpdateItem DeleteItem",
            "StockAdjustments": "PutItem",
            "Allotments": _USE_LANES,
            "Words": "PutItem DeleteItem",
            "Barcodes": "PutItem DeleteItem",
        },
        fed_by=("CatalogueQueue",),
        settings=("LOCATIONS", *_CALLERS),
    ),
    "CountStock": _Function(
        "count_stock",
        "Counts stock, under a lease or as of a time",
        {
            "Products": "BatchGetItem GetItem UpdateItem",
            "StockAdjustments": "BatchGetItem GetItem PutItem",
            # GetItem: a count starts by reading the units on hand in one transaction.
            "Allotments": f"{_USE_LANES} GetItem",
        },
        settings=_CALLERS,
    ),
    _SWEEP: _Function(
        "sweep",
        "Queues holds that are about to end, folds outbound pages, and returns units of idle lanes to rows",
        {
            "Products": "BatchGetItem UpdateItem DescribeTable",
            "Orders": "DescribeTable BatchGetItem",
            "Orders/byExpiry": "Query",
            "Orders/byStatus": "Query",
            "Orders/byLatePayment": "Query",
            "StockAdjustments": "UpdateItem",
            "StockAdjustments/byTransfer": "Query",
            "Allotments": _USE_LANES,
            "Movements": "Query UpdateItem BatchWriteItem",
        },
        settings=("HOLD_GRACE_SECONDS", "SWEEP_MINUTES"),
    ),
    _PUBLISH_EVENTS: _Function("publish_events", "Publishes events of orders and products"),
    _RECORD_MOVEMENTS: _Function(
        "record_movements",
        "Lists the units that orders move by product and by reference, and notes changes for the desk",
        {"Movements": "BatchWriteItem UpdateItem"},
        settings=("NOTES_CHANGES",),
    ),
    _API: _Function(
        "api",
        "Answers the HTTP API",
        {
            "Products": f"{_PROVE_REJECTIONS} BatchGetItem Scan UpdateItem",
            "Orders": _WRITE_ORDERS,
            "Orders/byUser": "Query",
            "Orders/byStatus": "Query",
            "Orders/byLatePayment": "Query",
            "Products/byLevel": "Query",
            "StockAdjustments": "Query",
            "Products/byCount": "Query",
            "StockAdjustments/byTime": "Query",
            "StockAdjustments/byStocktake": "Query",
            "StockAdjustments/byTransfer": "Query",
            "Movements": "Query",
            "Movements/byReference": "Query",
            "Allotments": f"{_USE_LANES} GetItem",
            "Words": "Query",
            "Barcodes": "GetItem",
            "Purchases": _COUNT_PURCHASES,
        },
        settings=(
            *("ORDER_QUEUE_URL", "EXPRESS_QUEUE_URL", "CUSTOMERS_MAY_SET", "ABOUT"),
            *(*_LANES, *_DEFAULTS_OF_ORDERS, *_CALLERS),
        ),
    ),
    _SERVE_DESK: _Function(
        "serve_desk",
        "Serves the files of the desk",
        # One vCPU has 1,769 MB. With a seventh of one, a file takes a few milliseconds.
        alone=FunctionSettings(memoryMegabytes=256, timeoutSeconds=10),
    ),
}


VARIABLES = {
    "PRODUCTS_TABLE_NAME": "the table `Products`",
    "ORDERS_TABLE_NAME": "the table `Orders`",
    "STOCK_ADJUSTMENTS_TABLE_NAME": "the table `StockAdjustments`",
    "ALLOTMENTS_TABLE_NAME": "the table `Allotments`",
    "MOVEMENTS_TABLE_NAME": "the table `Movements`, with the setting `movements`",
    "WORDS_TABLE_NAME": "the table `Words`",
    "BARCODES_TABLE_NAME": "the table `Barcodes`",
    "PURCHASES_TABLE_NAME": "the table `Purchases`",
    "POWERTOOLS_SERVICE_NAME": "the dimension `service` of the metrics: `inventory-orders-<stage>`",
    "POWERTOOLS_LOG_LEVEL": "the setting `logLevel`",
    "POWERTOOLS_METRICS_DISABLED": "`true` with the setting `monitoring: basic`",
    "QUEUE_URL": "the queue that feeds the function",
    "DEAD_LETTER_QUEUE_URL": "its dead-letter queue",
    "FIFO_QUEUE_URL": "`OrderQueueFifo`, if there is one, for `place_orders`",
    "FIFO_DEAD_LETTER_QUEUE_URL": "its dead-letter queue",
    "EXPRESS_QUEUE_URL": "`OrderQueueExpress`, if there is one, for `place_orders` and `api`, which sends orders to it while their callers wait",
    "EXPRESS_DEAD_LETTER_QUEUE_URL": "its dead-letter queue, for `place_orders`",
    "EXPIRY_QUEUE_URL": "`ExpiryQueue`, for `change_orders` and `sweep`",
    "EXPIRY_DEAD_LETTER_QUEUE_URL": "its dead-letter queue",
    "LANES": "the setting `lanes`, for `place_orders` and `api`",
    "API_LANES": "the number of lanes for the processes of `api`, which follow the others, for `place_orders` and `api`",
    "HOLD_SECONDS": "the setting `holdSeconds`, if it is set, for `place_orders` and `api`",
    "LOCATIONS": "the setting `locations`, comma-separated, unless it is the default, for `place_orders`, `api` and `manage_products`",
    "BUYERS_DEFAULT": "the setting `buyersDefault`, for `place_orders` and `api`",
    "HOLD_GRACE_SECONDS": "the setting `holdGraceSeconds`, for `change_orders` and `sweep`",
    "SWEEP_MINUTES": "the setting `sweepMinutes`, for `sweep`",
    "ORDER_QUEUE_URL": "`OrderQueue`, to which `api` sends orders whose callers do not wait",
    "USER_ID_CLAIM": "the setting `jwt.userIdClaim`, for the functions that answer the API",
    "OPERATORS_CLAIM_NAME": "the name in `jwt.operatorsClaim`, for the functions that answer the API",
    "OPERATORS_CLAIM_VALUE": "the value in `jwt.operatorsClaim`, for the functions that answer the API",
    "ROLES": "the setting `roles` as JSON, for the functions that answer the API",
    "ABOUT": "the stage's name, whether it is in production, its currency, and whether it notes changes for the desk, as JSON, for `api`",
    "CUSTOMERS_MAY_SET": "the setting `customersMaySet`, comma-separated, unless it is empty, for `api`",
    "SHOW_STOCK": "the setting `showStock`, for the functions that answer the API",
    "EVENT_BUS_NAME": "the event bus, for `publish_events`",
    "STOCK_EVENT_BUS_NAME": "the event bus, for `sweep` with the setting `stockEvents`",
    "UNDELIVERABLE_EVENTS_QUEUE_URL": "the queue of events that could not be published, for `publish_events`",
    "UNRECORDED_MOVEMENTS_QUEUE_URL": "the queue of changes to orders whose movements could not be recorded, for `record_movements`",
    "NOTES_CHANGES": "`true` with the setting `desk`, for `record_movements`",
    "STREAM_MAPPINGS": "the event source mappings of `publish_events`, which `sweep` checks",
    "MOVEMENT_MAPPING": "the event source mapping through which `record_movements` reads the stream of `Orders`, which `sweep` checks, with the setting `movements`",
    "CHANGE_MAPPINGS": "all event source mappings of `record_movements`, which `sweep` checks, with the setting `desk`",
}
"""The environment variables of the functions, each with its meaning."""


class Functions(Construct):
    """The Lambda functions, one for each folder in functions/. Each has its own role, log group and alias.

    Attributes:
        all: The functions by construct id.
        live: The aliases by the functions' construct ids. Queues, streams, the schedule and the API invoke them.
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
        self._assets = assets.build_folder(self)
        layer = assets.layer(settings.runtime, self._assets)
        self._layer = lambda_.LayerVersion(
            self,
            "CoreLayer",
            description="The code of the inventory and order service, and its dependencies",
            code=lambda_.Code.from_asset(str(layer.path), asset_hash=layer.digest),
            compatible_runtimes=[self._runtime],
            compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
        )
        self._warn(settings.runtime, compiled=layer.compiled)
        self._environment = _environment(settings, queues)
        exists = {
            _API: settings.api,
            _RECORD_MOVEMENTS: settings.movements or settings.desk is not None,
            _SERVE_DESK: settings.desk is not None,
        }
        self.all = {
            construct_id: self._function(construct_id, declared, queues)
            for construct_id, declared in _FUNCTIONS.items()
            if exists.get(construct_id, True)
        }
        expiries = queues.expiries.queue.queue_arn
        allow(self.all[_SWEEP], expiries, "sqs:SendMessage", "sqs:GetQueueAttributes")
        self._name(self.all[_SWEEP], queues.expiries, _PREFIXES["ExpiryQueue"])
        self.sweep_schedule = self._schedule(_SWEEP, {"action": "sweep"})
        if queues.express is not None:
            for pair in (queues.orders, queues.express):
                allow(self.all[_API], pair.queue.queue_arn, "sqs:SendMessage")
        self._read_streams(queues, events)
        if settings.stock_events:
            self._publish_stock(self.all[_SWEEP], events)

    def _read_streams(self, queues: Queues, events: Events) -> None:
        """Let functions read the tables' streams, and let the sweep check that they do."""
        publishing = events.publish(
            self.all[_PUBLISH_EVENTS],
            self.live[_PUBLISH_EVENTS],
            queues.undeliverable_events,
            self._tables.orders,
            self._tables.products,
        )
        self._watch(self.all[_SWEEP], "STREAM_MAPPINGS", publishing)
        if _RECORD_MOVEMENTS in self.all:
            self._record_movements(queues, events)

    def _record_movements(self, queues: Queues, events: Events) -> None:
        """Let a function record movements, and note changes for the desk, as far as the settings `movements` and `desk` are on."""
        function, is_for_desk = self.all[_RECORD_MOVEMENTS], self._settings.desk is not None
        recording = events.record(
            function,
            self.live[_RECORD_MOVEMENTS],
            queues.unrecorded_movements,
            self._tables.orders,
            self._tables.products if is_for_desk else None,
        )
        if self._settings.movements:
            self._watch(self.all[_SWEEP], "MOVEMENT_MAPPING", recording[:1])
        if is_for_desk:
            arn = self._tables.allotments.table_arn
            allow(function, arn, "dynamodb:BatchGetItem", "dynamodb:UpdateItem")
            self._watch(self.all[_SWEEP], "CHANGE_MAPPINGS", recording)

    @staticmethod
    def _watch(
        function: lambda_.Function, variable: str, mappings: Sequence[lambda_.EventSourceMapping]
    ) -> None:
        """Allow a function to check that event source mappings of the streams are enabled."""
        ids = " ".join(mapping.event_source_mapping_id for mapping in mappings)
        function.add_environment(variable, ids)
        for mapping in mappings:
            resource = cast("lambda_.CfnEventSourceMapping", mapping.node.default_child)
            arn = resource.attr_event_source_mapping_arn
            allow(function, arn, "lambda:GetEventSourceMapping")

    def _publish_stock(self, function: lambda_.Function, events: Events) -> None:
        """Allow a function to read all products, and to publish events about changes to their stock."""
        function.add_environment("STOCK_EVENT_BUS_NAME", events.bus.event_bus_name)
        allow(function, events.bus.event_bus_arn, "events:PutEvents")
        allow(function, self._tables.products.table_arn, "dynamodb:Scan", "dynamodb:GetItem")
        allow(function, self._tables.allotments.table_arn, "dynamodb:GetItem")

    def _warn(self, runtime: str, *, compiled: bool) -> None:
        """Let the CDK warn of a runtime that ends soon, and of code without bytecode."""
        if runtime == _ENDING_RUNTIME:
            Annotations.of(self).add_warning_v2(
                "inventory-orders:endingRuntime",
                f"AWS ends its support for {runtime} on 30 June 2027, and refuses updates of functions with it from 31 August "
                "2027: set runtime to a later version",
            )
        if not compiled:
            Annotations.of(self._layer).add_warning_v2(
                "inventory-orders:notCompiled",
                f"this machine has no {runtime}, so the code is deployed without bytecode, and every cold start "
                f"has to compile it, which about doubles the time for imports. Install {runtime} (on the PATH, or in "
                "pyenv) on every machine that you deploy from. Otherwise, these machines redeploy each other's functions",
            )

    def _function(self, construct_id: str, declared: _Function, queues: Queues) -> lambda_.Function:
        name = declared.name
        settings = declared.alone or self._settings.functions[name]
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
        code = self._code(construct_id, name)
        reserved = {
            _API: self._settings.api_limits.concurrentExecutions,
            _SERVE_DESK: CONCURRENT_EXECUTIONS,
        }
        function = lambda_.Function(
            self,
            construct_id,
            description=declared.description,
            runtime=self._runtime,
            architecture=self._architecture,
            handler="handler.lambda_handler",
            code=lambda_.Code.from_asset(str(code.path), asset_hash=code.digest),
            layers=[] if declared.alone else [self._layer],
            role=role,
            log_group=log_group,
            memory_size=settings.memoryMegabytes,
            timeout=Duration.seconds(settings.timeoutSeconds),
            reserved_concurrent_executions=reserved.get(construct_id),
            # A copy inherits the count of its batch, so chains of different messages add up.
            # docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
            recursive_loop=lambda_.RecursiveLoop.ALLOW
            if _SENT_AGAIN & {*declared.fed_by}
            else None,
            # With tracing, the CDK lets the role send segments: xray:PutTraceSegments, xray:PutTelemetryRecords.
            tracing=lambda_.Tracing.ACTIVE if self._settings.tracing else lambda_.Tracing.DISABLED,
            environment={} if declared.alone else self._variables(declared),
            # Earlier versions are kept, so that an operator can roll back. The version of a failed deployment must be deleted: Lambda
            # publishes no version that equals the last one, so the next attempt would fail.
            # docs.aws.amazon.com/lambda/latest/api/API_PublishVersion.html
            current_version_options=lambda_.VersionOptions(
                removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
            ),
        )
        self.live[construct_id] = function.add_alias(LIVE)
        for queue_name in declared.fed_by:
            if queue_name in queues.all:
                self._feed(function, self.live[construct_id], queue_name, queues.all[queue_name])
        self._grant_tables(function, declared)
        return function

    def _code(self, construct_id: str, name: str) -> assets.Asset:
        """Build the code of a function. That of the desk includes its files."""
        desk, jwt = self._settings.desk, self._settings.jwt
        answers = {}
        if construct_id == _SERVE_DESK and desk is not None and jwt is not None:
            answers["answers.json"] = answers_file(desk, jwt.issuer, self._assets)
        return assets.function(name, self._settings.runtime, self._assets, answers)

    def _grant_tables(self, function: lambda_.Function, declared: _Function) -> None:
        for place, operations in declared.tables.items():
            name, _, index = place.partition("/")
            table = self._tables.all.get(Table(name))
            if table is None:
                continue
            arn = table.table_arn
            actions = [f"dynamodb:{operation}" for operation in operations.split()]
            allow(function, f"{arn}/index/{index}" if index else arn, *actions)

    def _variables(self, declared: _Function) -> dict[str, str]:
        """List the environment variables with which a function is created. Its queues and streams add others."""
        return {
            **{
                f"{table.name}_TABLE_NAME": made.table_name
                for table, made in self._tables.all.items()
            },
            "POWERTOOLS_SERVICE_NAME": self._settings.service_name,
            "POWERTOOLS_LOG_LEVEL": self._settings.log_level,
            **{
                variable: self._environment[variable]
                for variable in ("POWERTOOLS_METRICS_DISABLED", *declared.settings)
                if variable in self._environment
            },
        }

    def _feed(
        self, function: lambda_.Function, live: lambda_.Alias, queue_name: str, pair: QueuePair
    ) -> None:
        settings = self._settings.queues[queue_name]
        self._name(function, pair, _PREFIXES.get(queue_name, ""))
        lambda_.EventSourceMapping(
            function,
            # The id that the CDK's own SqsEventSource uses. With another id, an update would create a second mapping
            # for the queue before it deletes the first, which Lambda does not allow.
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
        allow(function, pair.queue.queue_arn, *actions)
        allow(function, pair.dead_letters.queue_arn, "sqs:SendMessage")

    @staticmethod
    def _name(function: lambda_.Function, pair: QueuePair, prefix: str) -> None:
        """Tell a function the URLs of a queue and of its dead-letter queue, in environment variables."""
        function.add_environment(f"{prefix}QUEUE_URL", pair.queue.queue_url)
        function.add_environment(f"{prefix}DEAD_LETTER_QUEUE_URL", pair.dead_letters.queue_url)

    def _schedule(self, construct_id: str, event: Mapping[str, str]) -> scheduler.CfnSchedule:
        """Invoke a function at regular intervals. A failed invocation is not retried, because the next one does its work."""
        minutes = self._settings.sweep_minutes
        often = "minute" if minutes == 1 else f"{minutes} minutes"
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
        # The schedule invokes asynchronously, so Lambda would also retry a failed invocation.
        # docs.aws.amazon.com/lambda/latest/dg/with-eventbridge-scheduler.html
        live.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(1))
        return scheduler.CfnSchedule(
            self,
            f"{construct_id}Schedule",
            description=f"Invokes {construct_id} every {often}",
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
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


def _environment(settings: Settings, queues: Queues) -> dict[str, str]:
    """List the environment variables that only some functions or stages have."""
    values = {
        "POWERTOOLS_METRICS_DISABLED": "true" if settings.monitoring == "basic" else None,
        "LANES": str(settings.lanes),
        "API_LANES": str(settings.api_lanes),
        "HOLD_SECONDS": None if settings.hold_seconds is None else str(settings.hold_seconds),
        "LOCATIONS": ",".join(settings.locations),
        "BUYERS_DEFAULT": settings.buyers_default,
        "HOLD_GRACE_SECONDS": str(settings.hold_grace_seconds),
        "SWEEP_MINUTES": str(settings.sweep_minutes),
        "ORDER_QUEUE_URL": queues.orders.queue.queue_url,
        "EXPRESS_QUEUE_URL": queues.express and queues.express.queue.queue_url,
        "CUSTOMERS_MAY_SET": ",".join(settings.customers_may_set),
        "SHOW_STOCK": settings.show_stock,
        "ABOUT": _about(settings),
        "NOTES_CHANGES": None if settings.desk is None else "true",
    } | _claims(settings)
    return {name: value for name, value in values.items() if value}


def _about(settings: Settings) -> str:
    """The facts about the stage that its staff are shown, as JSON."""
    code = settings.currency
    facts = {
        "stage": settings.stage,
        "production": settings.is_production,
        "currency": {"code": code or "", "digits": DIGITS[code] if code else 0},
        "changes": settings.desk is not None,
    }
    return json.dumps(facts, separators=(",", ":"))


def _claims(settings: Settings) -> dict[str, str | None]:
    """List the environment variables that say how tokens identify callers, and what roles may do."""
    if settings.jwt is None:
        return {}
    name, value = settings.jwt.operators_claim or (None, None)
    return {
        "USER_ID_CLAIM": settings.jwt.user_id_claim,
        "OPERATORS_CLAIM_NAME": name,
        "OPERATORS_CLAIM_VALUE": value,
        "ROLES": json.dumps(settings.roles, separators=(",", ":")) if settings.roles else None,
    }


# Lambda's poller needs the first three: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html. The CDK's
# own grant adds an unneeded one.
_CONSUME = [
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    # The handler delays returned messages.
    "sqs:ChangeMessageVisibility",
]

# Their messages may be early. After a long wait the function sends such a message again, so that SQS counts its deliveries
# from zero. Each message is copied at most once.
_SENT_AGAIN = {"StockQueue", "CatalogueQueue", "OrderCommandQueue"}

# Prefixes of the variables that name a queue, for functions with several queues.
_PREFIXES = {"OrderQueueFifo": "FIFO_", "OrderQueueExpress": "EXPRESS_", "ExpiryQueue": "EXPIRY_"}

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
