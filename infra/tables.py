"""The DynamoDB tables."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.settings import Settings

# `publish_events` makes events from the row before and after a change.
_BOTH_IMAGES = dynamodb.StreamViewType.NEW_AND_OLD_IMAGES


class Tables(Construct):
    """Products, Orders, StockAdjustments and Allotments: on demand, encrypted, with point-in-time recovery for 35 days."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.products = self._table("Products", "productId", stream=_BOTH_IMAGES)
        self.orders = self._table(
            "Orders",
            "orderId",
            stream=_BOTH_IMAGES,
            indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name="byUser",
                    partition_key=_string("userId"),
                    sort_key=_string("createdAt"),
                    projection_type=dynamodb.ProjectionType.INCLUDE,
                    non_key_attributes=["status"],
                    # A throttled index throttles the writes of its table.
                    warm_throughput=self._warm("Orders"),
                ),
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name="byExpiry",
                    partition_key=_string("expiryShard"),
                    sort_key=_string("expiresAt"),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                    warm_throughput=self._warm("Orders"),
                ),
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name="byToFulfil",
                    partition_key=_string("fulfilShard"),
                    sort_key=_string("confirmedAt"),
                    projection_type=dynamodb.ProjectionType.INCLUDE,
                    non_key_attributes=["userId", "status"],
                    warm_throughput=self._warm("Orders"),
                ),
            ],
        )
        self.stock_adjustments = self._table("StockAdjustments", "productId", "adjustmentId")
        self.allotments = self._table("Allotments", "page")
        self.all = {
            "Products": self.products,
            "Orders": self.orders,
            "StockAdjustments": self.stock_adjustments,
            "Allotments": self.allotments,
        }

    def _table(
        self,
        name: str,
        partition_key: str,
        sort_key: str | None = None,
        *,
        stream: dynamodb.StreamViewType | None = None,
        indexes: list[dynamodb.GlobalSecondaryIndexPropsV2] | None = None,
    ) -> dynamodb.TableV2:
        protected = self._settings.is_production
        table = dynamodb.TableV2(
            self,
            name,
            partition_key=_string(partition_key),
            sort_key=_string(sort_key) if sort_key else None,
            billing=dynamodb.Billing.on_demand(),
            # KMS bills every other key:
            # docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.tutorial.html
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=protected,
            # Also if its first deployment fails: CloudFormation cannot delete a protected table.
            removal_policy=RemovalPolicy.RETAIN if protected else RemovalPolicy.DESTROY,
            dynamo_stream=stream,
            global_secondary_indexes=indexes,
            warm_throughput=self._warm(name),
        )
        if self._settings.table_key is not None:
            # The CDK's own property needs a stack with a fixed region.
            resource = cast("dynamodb.CfnGlobalTable", table.node.default_child)
            resource.sse_specification = dynamodb.CfnGlobalTable.SSESpecificationProperty(
                sse_enabled=True, sse_type="KMS"
            )
            resource.add_property_override(
                "Replicas.0.SSESpecification", {"KMSMasterKeyId": self._settings.table_key}
            )
        return table

    def _warm(self, table: str) -> dynamodb.WarmThroughput | None:
        warm = self._settings.warm_throughput.get(table)
        if warm is None:
            return None
        return dynamodb.WarmThroughput(
            read_units_per_second=warm.readUnitsPerSecond,
            write_units_per_second=warm.writeUnitsPerSecond,
        )


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
