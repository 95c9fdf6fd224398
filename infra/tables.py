"""The DynamoDB tables, created from the list of tables in the layer."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from inventory_orders.store.tables import INDEXES, KEYS, STREAMED, Index, Table

from .settings import Settings

# `publish_events` derives events from the row before and after a change.
_BOTH_IMAGES = dynamodb.StreamViewType.NEW_AND_OLD_IMAGES

# CloudWatch shows the keys in plaintext, so no table or index is watched whose keys belong to customers. An index would
# inherit the setting of its table. The rows of Words and Barcodes are written only when a product gets other ones.
_NOT_WATCHED = (Table.ORDERS, Table.PURCHASES, Table.WORDS, Table.BARCODES, Table.MOVEMENTS)


class Tables(Construct):
    """All tables of the service. They have on-demand capacity, are encrypted, and can be restored to any point in the last 35 days."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.all = {
            table: self._table(table)
            for table in Table
            if table is not Table.MOVEMENTS or settings.movements
        }
        self.products = self.all[Table.PRODUCTS]
        self.orders = self.all[Table.ORDERS]
        self.allotments = self.all[Table.ALLOTMENTS]

    def _table(self, name: Table) -> dynamodb.TableV2:
        partition_key, *sort_key = map(_string, KEYS[name])
        protected = self._settings.is_production
        table = dynamodb.TableV2(
            self,
            name,
            partition_key=partition_key,
            sort_key=sort_key[0] if sort_key else None,
            billing=dynamodb.Billing.on_demand(),
            # KMS charges for every other key:
            # docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.tutorial.html
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=protected,
            # Even if its first deployment fails, because CloudFormation cannot delete a protected table.
            removal_policy=RemovalPolicy.RETAIN if protected else RemovalPolicy.DESTROY,
            dynamo_stream=_BOTH_IMAGES if name in STREAMED else None,
            global_secondary_indexes=[self._index(index, name) for index in INDEXES.get(name, ())],
            contributor_insights_specification=self._insights(name),
            warm_throughput=self._warm(name),
        )
        resource = cast("dynamodb.CfnGlobalTable", table.node.default_child)
        if self._insights(name) is not None:
            for number in range(len(INDEXES.get(name, ()))):
                # The rule of the table is enough. The CDK gives each index one of its own.
                resource.add_property_deletion_override(
                    f"Replicas.0.GlobalSecondaryIndexes.{number}.ContributorInsightsSpecification"
                )
        if self._settings.table_key is not None:
            # The CDK's own property requires a stack with a fixed region.
            resource.sse_specification = dynamodb.CfnGlobalTable.SSESpecificationProperty(
                sse_enabled=True, sse_type="KMS"
            )
            resource.add_property_override(
                "Replicas.0.SSESpecification", {"KMSMasterKeyId": self._settings.table_key}
            )
        return table

    def _index(self, index: Index, of: Table) -> dynamodb.GlobalSecondaryIndexPropsV2:
        kind = dynamodb.ProjectionType
        return dynamodb.GlobalSecondaryIndexPropsV2(
            index_name=index.name,
            partition_key=_string(index.keys[0]),
            sort_key=_string(index.keys[1]),
            projection_type=kind.INCLUDE if index.attributes else kind.KEYS_ONLY,
            non_key_attributes=[*index.attributes] or None,
            # A throttled index would throttle writes to its table.
            warm_throughput=self._warm(of),
        )

    def _insights(self, table: Table) -> dynamodb.ContributorInsightsSpecification | None:
        """Let CloudWatch show throttled keys. AWS advises against it if a key of KMS has to protect the tables' keys.

        docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateContributorInsights.html
        """
        is_full = self._settings.monitoring == "full"
        if not is_full or self._settings.table_key is not None or table in _NOT_WATCHED:
            return None
        return dynamodb.ContributorInsightsSpecification(
            enabled=True, mode=dynamodb.ContributorInsightsMode.THROTTLED_KEYS
        )

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
