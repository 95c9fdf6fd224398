"""Exports tables to S3 with DynamoDB's own export, for reports in Athena."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from inventory_orders.store.tables import Table

from .aws import Aws
from .errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPORTED = (Table.PRODUCTS, Table.ORDERS, Table.STOCK_ADJUSTMENTS)
"""The tables that the reports read. The units in lanes can be computed from these."""

_PAUSE = 15.0


@dataclass(frozen=True, slots=True)
class Export:
    """The export of one table to S3.

    Attributes:
        table: The table.
        arn: The export's ARN.
        place: The S3 address of its data, which begins with `s3://`.
    """

    table: Table
    arn: str
    place: str


def start(aws: Aws, bucket: str | None) -> list[Export]:
    """Have DynamoDB export all tables as they were at one point in time, a few minutes ago.

    Args:
        aws: The stack, on an account.
        bucket: The target; None for a bucket of this account and region, which is created if missing.

    Raises:
        UserError: A table has no point-in-time recovery, or AWS refuses the export.
    """
    partition, _, region, account, stack = aws.stack_id.split(":")[1:]
    try:
        latest = []
        for table in REPORTED:
            described = aws.dynamodb.describe_continuous_backups(TableName=aws.tables[table])
            recovery = described["ContinuousBackupsDescription"].get(
                "PointInTimeRecoveryDescription", {}
            )
            if "LatestRestorableDateTime" not in recovery:
                raise UserError(
                    f"{aws.tables[table]} has no point-in-time recovery, which exports need: deploy the stack "
                    "again to turn it on"
                )
            latest.append(recovery["LatestRestorableDateTime"])
        if bucket is None:
            bucket = _own_bucket(aws, region, account)
        exports = []
        for table in REPORTED:
            name = aws.tables[table]
            prefix = f"{stack.split('/')[1]}/{table.value}"
            # docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ExportTableToPointInTime.html
            started = aws.dynamodb.export_table_to_point_in_time(
                TableArn=f"arn:{partition}:dynamodb:{region}:{account}:table/{name}",
                ExportTime=min(latest),
                S3Bucket=bucket,
                S3Prefix=prefix,
                ExportFormat="DYNAMODB_JSON",
            )
            arn = started["ExportDescription"]["ExportArn"]
            data = f"s3://{bucket}/{prefix}/AWSDynamoDB/{arn.rsplit('/', 1)[1]}/data/"
            exports.append(Export(table, arn, data))
    except ClientError as error:
        raise UserError(f"the tables cannot be exported: {error}") from error
    return exports


def bucket_name(region: str, account: str) -> str:
    """Return the name of the default bucket for exports, which all stages share."""
    return f"inventory-orders-exports-{account}-{region}"


def _own_bucket(aws: Aws, region: str, account: str) -> str:
    bucket = bucket_name(region, account)
    s3 = aws.client("s3")
    # In us-east-1, S3 rejects a location constraint, and accepts creating a bucket that you already own.
    elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket, **({} if region == "us-east-1" else elsewhere))
    return bucket


def wait(aws: Aws, exports: Sequence[Export], on_progress: Callable[[str], None]) -> None:
    """Wait until all data is in S3."""
    for export in exports:
        while (
            found := aws.dynamodb.describe_export(ExportArn=export.arn)["ExportDescription"]
        ).get("ExportStatus") == "IN_PROGRESS":
            on_progress(f"Exporting {export.table.value}")
            time.sleep(_PAUSE)
        if found.get("ExportStatus") != "COMPLETED":
            raise UserError(
                f"{export.table.value} was not exported: {found.get('FailureCode')}: {found.get('FailureMessage')}"
            )


def reports(exports: Sequence[Export], stage: str) -> str:
    """Write SQL for Athena: the stage's database, tables over these exports, and queries."""
    text = resources.files(__package__).joinpath("reports.sql").read_text("utf-8")
    places = {export.table.value: export.place for export in exports}
    # docs.aws.amazon.com/athena/latest/ug/tables-databases-columns-names.html
    database = f"inventory_orders_{stage.replace('-', '_')}"
    return Template(text).substitute(places, database=database)
