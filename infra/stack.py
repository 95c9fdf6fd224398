"""The stack: joins tables, queues, functions and monitoring, and defines the outputs for other tools."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnOutput, Stack, Tags
from constructs import Construct

from infra.api import Api, access_log
from infra.events import Events
from infra.functions import RETENTION, Functions
from infra.monitoring import Monitoring, list_things
from infra.queues import Queues
from infra.settings import Settings
from infra.tables import Tables

OUTPUTS = {
    "OrderQueueUrl": "Takes orders, in general",
    "OrderQueueFifoUrl": "Takes orders that are served in the order of their arrival; absent without `fifoQueue`",
    "StockQueueUrl": "Takes adjustments of stock",
    "CatalogueQueueUrl": "Takes catalogue events",
    "OrderCommandQueueUrl": "Takes commands on orders: confirm, extend, fulfil, cancel, return",
    "ExpiryQueueUrl": "Takes ending holds, from the sweep",
    "OrderDeadLetterQueueUrl": "Dead letters of OrderQueue",
    "OrderFifoDeadLetterQueueUrl": "Dead letters of OrderQueueFifo; absent without `fifoQueue`",
    "StockDeadLetterQueueUrl": "Dead letters of StockQueue",
    "CatalogueDeadLetterQueueUrl": "Dead letters of CatalogueQueue",
    "OrderCommandDeadLetterQueueUrl": "Dead letters of OrderCommandQueue",
    "ExpiryDeadLetterQueueUrl": "Dead letters of ExpiryQueue",
    "UndeliverableEventsQueueUrl": "Events that could not be published",
    "EventBusName": "The event bus for events of orders and products",
    "ProductsTableName": "Table of the products",
    "OrdersTableName": "Table of the orders",
    "StockAdjustmentsTableName": "Table of the adjustments of stock",
    "AllotmentsTableName": "Table of the lanes: their leases, and pages with their units",
    "OrdersStreamArn": "Stream of the orders, with old and new images",
    "ApiUrl": "Address of the HTTP API, for signed requests; absent if there is none",
    "CustomerApiUrl": "Address of the HTTP API for requests with a token; absent without the setting `jwt`",
    "ApiAccessLogGroupName": "Access log of the HTTP APIs; absent if there is none",
    "DashboardName": "The CloudWatch dashboard; absent with `monitoring: basic`",
    "SweepScheduleName": "The schedule that invokes the sweep",
    "{name}FunctionName": "A function; invoke its alias, `live`",
    "{name}LogGroupName": "The log of a function",
}
"""The outputs, each with its description. `{name}` is the name of a function, such as PlaceOrders."""


class InventoryOrdersStack(Stack):
    """The inventory and order service of one stage."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Inventory and order service, stage {settings.stage}",
            termination_protection=settings.is_production,
        )
        tables = Tables(self, "Tables", settings)
        queues = Queues(self, "Queues", settings)
        events = Events(self, "Events", settings)
        functions = Functions(self, "Functions", settings, tables, queues, events)
        # Also without an API: production keeps a log that leaves the stack, and then its name is taken.
        log = access_log(self, settings, RETENTION[settings.log_retention_days])
        apis: dict[str, Api] = {}
        if settings.api:
            apis["Api"] = Api(self, "Api", settings, functions.live, log)
            if settings.jwt is not None:
                apis["CustomerApi"] = Api(
                    *(self, "CustomerApi", settings, functions.live, log), settings.jwt
                )
        watched = list_things(settings, tables, queues, functions, apis)
        monitoring = Monitoring(self, "Monitoring", settings, watched)
        Tags.of(self).add("service", settings.service_name)

        self._export(queues.outputs)
        self._export({f"{name}TableName": table.table_name for name, table in tables.all.items()})
        self._export({f"{name}Url": api.http_api.attr_api_endpoint for name, api in apis.items()})
        if apis:
            self._export({"ApiAccessLogGroupName": log.log_group_name})
        if monitoring.dashboard is not None:
            self._export({"DashboardName": monitoring.dashboard.dashboard_name})
        self._export(
            {
                "EventBusName": events.bus.event_bus_name,
                "OrdersStreamArn": tables.orders.table_stream_arn or "",
                "SweepScheduleName": functions.sweep_schedule.ref,
            }
        )
        for name, function in functions.all.items():
            self._export({"{name}FunctionName": function.function_name}, name)
            self._export({"{name}LogGroupName": function.log_group.log_group_name}, name)

    def _export(self, outputs: Mapping[str, str], name: str = "") -> None:
        """Make outputs by their names in `OUTPUTS`, of which some have the name of a function in them."""
        for output, value in outputs.items():
            CfnOutput(self, output.format(name=name), value=value, description=OUTPUTS[output])
