"""The service as a construct for any CDK app, and as a stack with outputs for other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Unpack

from aws_cdk import Annotations, CfnOutput, Stack, Tags
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_events import EventBus
from aws_cdk.aws_logs import LogGroup
from constructs import Construct

from inventory_orders.version import VERSION

from .api import Api, access_log
from .currencies import DIGITS
from .desk import HostedDesk
from .events import Events
from .functions import RETENTION, Functions
from .monitoring import Monitoring, list_things
from .queues import Queues
from .settings import Arguments, Settings
from .tables import Tables

OUTPUTS = {
    "OrderQueueUrl": "Queue for orders",
    "OrderQueueFifoUrl": "Queue for orders that are placed in the sequence in which they arrive; absent without `fifoQueue`",
    "OrderQueueExpressUrl": "Queue for orders whose callers wait for the API's answer; only the API sends to it; absent without the setting `api`",
    "StockQueueUrl": "Queue for adjustments of stock",
    "CatalogueQueueUrl": "Queue for catalogue events",
    "OrderCommandQueueUrl": "Queue for commands that change orders: confirm, extend, fulfil, cancel, return",
    "ExpiryQueueUrl": "Queue for holds that are about to end; only the sweep sends to it",
    "OrderDeadLetterQueueUrl": "Dead letters of OrderQueue",
    "OrderFifoDeadLetterQueueUrl": "Dead letters of OrderQueueFifo; absent without `fifoQueue`",
    "OrderExpressDeadLetterQueueUrl": "Dead letters of OrderQueueExpress; absent without the setting `api`",
    "StockDeadLetterQueueUrl": "Dead letters of StockQueue",
    "CatalogueDeadLetterQueueUrl": "Dead letters of CatalogueQueue",
    "OrderCommandDeadLetterQueueUrl": "Dead letters of OrderCommandQueue",
    "ExpiryDeadLetterQueueUrl": "Dead letters of ExpiryQueue",
    "UndeliverableEventsQueueUrl": "Events that could not be published",
    "EventBusName": "The event bus for events of orders and products",
    "UnrecordedMovementsQueueUrl": "Changes to orders whose movements could not be recorded; absent without the setting `movements`",
    "ProductsTableName": "The table of products",
    "OrdersTableName": "The table of orders",
    "StockAdjustmentsTableName": "The table of adjustments of stock",
    "AllotmentsTableName": "The table of the units in lanes, the lanes' leases, and units that have left",
    "MovementsTableName": "The table of the units that orders moved; absent without the setting `movements`",
    "WordsTableName": "The table of the words by which a search finds products",
    "BarcodesTableName": "The table of the products' barcodes",
    "PurchasesTableName": "The table of what buyers have bought of products with purchase limits",
    "OrdersStreamArn": "The stream of orders, with old and new images",
    "ApiUrl": "URL of the HTTP API for signed requests; absent without the setting `api`",
    "CustomerApiUrl": "URL of the HTTP API for requests with a token; absent without the setting `jwt`",
    "DeskUrl": "Address of the desk, which is the callback URL and the sign-out URL of its client at the issuer; absent without the setting `desk`",
    "DeskDomainTarget": "The name to which the DNS name of the desk's domain must point; absent without the setting `desk.domain`",
    "ApiAccessLogGroupName": "Access log of the HTTP APIs; absent without an API",
    "DashboardName": "The CloudWatch dashboard; absent with `monitoring: basic`",
    "SweepScheduleName": "The schedule that invokes the sweep",
    "OrderLocations": "The setting `locations`, as JSON",
    "Currency": "The setting `currency` and its number of decimals, as JSON; absent without the setting",
    "{name}FunctionName": "The name of a function; invoke its alias, `live`",
    "{name}LogGroupName": "The log of a function",
}
"""The outputs and their descriptions. `{name}` is the name of a function, such as PlaceOrders."""

_FLAGS = (
    "@aws-cdk/aws-iam:minimizePolicies",
    "@aws-cdk/aws-lambda:recognizeLayerVersion",
    "@aws-cdk/aws-lambda:recognizeVersionProps",
    # The commands tell the resources of a service from others of its stack by the path of their construct.
    "aws:cdk:enable-path-metadata",
)
"""Flags of the CDK that the service needs, whatever its app sets."""


class InventoryOrders(Construct):
    """The inventory and order service, as a construct for any CDK stack.

    The names of its resources derive from `name`, so an app may contain several services.

    Args:
        scope: The stack.
        construct_id: The id of the construct in the stack.
        name: 1 to 20 lowercase letters, digits or hyphens, unique in the account and region.
        settings: Settings that replace defaults, as described in docs/generated/settings.md.

    Attributes:
        queues: The queues by name, such as `OrderQueue` and `OrderDeadLetterQueue`.
        tables: The tables by name, such as `Products`. Only the service may write to them.
        bus: The event bus for events about orders and products. Subscribe to it with a rule.
        functions: The functions by name, such as `PlaceOrders`, each as its alias `live`.

    Raises:
        SettingsError: A setting is unknown or out of range.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, **settings: Unpack[Arguments]
    ) -> None:
        self._define(scope, construct_id, Settings.from_arguments(name, settings))

    def _define(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        for flag in _FLAGS:
            self.node.set_context(flag, True)
        if settings.is_production and not Stack.of(self).termination_protection:
            Annotations.of(self).add_warning_v2(
                "inventory-orders:unprotectedStack",
                f"{settings.stage} is a production service, but its stack is not protected against deletion, and `verify` does not "
                "ask before it sends orders: create the stack with termination_protection=True",
            )
        tables = Tables(self, "Tables", settings)
        queues = Queues(self, "Queues", settings)
        events = Events(self, "Events", settings)
        functions = Functions(self, "Functions", settings, tables, queues, events)
        # Even without an API: in production the log outlives the stack, so that a later stack could not create it.
        log = access_log(self, settings, RETENTION[settings.log_retention_days])
        apis = self._apis(settings, functions.live, log)
        watched = list_things(settings, tables, queues, functions, apis)
        monitoring = Monitoring(self, "Monitoring", settings, watched)
        Tags.of(self).add("service", settings.service_name)

        self.queues: Mapping[str, sqs.Queue] = queues.by_name
        self.tables: Mapping[str, dynamodb.TableV2] = {
            t.value: made for t, made in tables.all.items()
        }
        self.bus: EventBus = events.bus
        self.functions: Mapping[str, lambda_.Alias] = functions.live
        self._outputs = {
            **{f"{name}Url": queue.queue_url for name, queue in queues.by_name.items()},
            **{f"{name}TableName": table.table_name for name, table in self.tables.items()},
            **_outputs_of_apis(apis, log),
            **self._desk(settings, apis, functions.live),
            "EventBusName": events.bus.event_bus_name,
            "OrdersStreamArn": tables.orders.table_stream_arn or "",
            "SweepScheduleName": functions.sweep_schedule.ref,
            "OrderLocations": json.dumps(settings.locations),
            **_output_of_currency(settings.currency),
        }
        if monitoring.dashboard is not None:
            self._outputs["DashboardName"] = monitoring.dashboard.dashboard_name
        self._outputs_of_functions = {
            name: {
                "{name}FunctionName": function.function_name,
                "{name}LogGroupName": function.log_group.log_group_name,
            }
            for name, function in functions.all.items()
        }

    def _apis(
        self, settings: Settings, live: Mapping[str, lambda_.Alias], log: LogGroup
    ) -> dict[str, Api]:
        if not settings.api:
            return {}
        apis = {"Api": Api(self, "Api", settings, live, log)}
        if settings.jwt is not None:
            apis["CustomerApi"] = Api(self, "CustomerApi", settings, live, log, settings.jwt)
        return apis

    def _desk(
        self, settings: Settings, apis: Mapping[str, Api], live: Mapping[str, lambda_.Alias]
    ) -> dict[str, str]:
        """Create the desk, if there is one, and return its outputs."""
        if settings.desk is None:
            return {}
        desk = HostedDesk(self, "Desk", settings.desk, apis["CustomerApi"], live["ServeDesk"])
        target = desk.domain_target
        return {"DeskUrl": desk.url, **({} if target is None else {"DeskDomainTarget": target})}

    def add_outputs(self, prefix: str = "") -> None:
        """Add the stack outputs listed in docs/generated/stack.md. The command `inventory-orders` accepts the prefix as `--prefix`.

        Args:
            prefix: The prefix of each output's name. Two services in one stack need different prefixes.

        Raises:
            ValueError: The prefix ends with `Customer`.
        """
        # With another service's prefix before it, its ApiUrl would have the name of that service's CustomerApiUrl.
        if prefix.endswith("Customer"):
            raise ValueError(
                f'the prefix "{prefix}" must not end with Customer: its ApiUrl could be mistaken for the CustomerApiUrl of another service'
            )
        stack = Stack.of(self)
        of_functions = self._outputs_of_functions.items()
        for name, outputs in [("", self._outputs), *of_functions]:
            for output, value in outputs.items():
                description = OUTPUTS[output]
                full = prefix + output.format(name=name)
                CfnOutput(stack, full, value=value, description=description)


def _outputs_of_apis(apis: Mapping[str, Api], log: LogGroup) -> dict[str, str]:
    if not apis:
        return {}
    urls = {f"{name}Url": api.http_api.attr_api_endpoint for name, api in apis.items()}
    return {**urls, "ApiAccessLogGroupName": log.log_group_name}


def _output_of_currency(code: str | None) -> dict[str, str]:
    return {} if code is None else {"Currency": json.dumps({"code": code, "digits": DIGITS[code]})}


class _Configured(InventoryOrders):
    """The service, with settings that were read from cdk.json."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        self._define(scope, construct_id, settings)


class InventoryOrdersStack(Stack):
    """A stack that contains only the service, with outputs. A production stack is protected against deletion."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Inventory and order service {VERSION}, stage {settings.stage}",
            termination_protection=settings.is_production,
        )
        # This id does not become part of the resources' ids.
        _Configured(self, "Default", settings).add_outputs()
