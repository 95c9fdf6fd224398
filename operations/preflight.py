"""Checks before a deployment whether the account's quotas, the existing stack and the issuer of tokens allow it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from math import ceil
from typing import TYPE_CHECKING, Any, cast
from urllib.request import urlopen

from botocore.exceptions import BotoCoreError, ClientError

from .errors import UserError
from .queues import DEAD_LETTERS, OPTIONAL, QUEUES, depth_of
from .words import without_full_stop

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from .account import AwsAccount

_UNITS = ("readUnitsPerSecond", "writeUnitsPerSecond")
_Throughput = Sequence[tuple[str, str, int]]
"""The table, unit and number of a `warmThroughput` setting."""

LONGEST_WAIT_SECONDS = 25
"""The longest time that a caller of the HTTP API may wait: `MAX_WAIT_SECONDS` of the layer, which is slow to import."""

FOR_DESK = "record_movements for the desk"
READERS = {
    "publish_events": (("Orders", "Products"), 4),
    "record_movements": (("Orders",), 1),
    FOR_DESK: (("Products",), 1),
}
"""The tables whose streams a function reads, and the number of batches of a shard that it processes concurrently, as in
infra/events.py."""

API_RESERVES = "apiLimits.concurrentExecutions"
RESERVES = {API_RESERVES: "ApiFunctionName", "desk": "ServeDeskFunctionName"}
"""The settings that reserve concurrent executions for a function, with the output that names it."""
DESK_EXECUTIONS = 5
"""Concurrent executions that the setting `desk` reserves, as in infra/desk.py."""

_NEW_TABLE = {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000}
_PARTITION = {"ReadUnitsPerSecond": 3_000, "WriteUnitsPerSecond": 1_000}

_NEVER_RESERVED = 100
"""Lambda keeps this many for functions without a reservation:
docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html
"""

_UNITS_OF_AN_ORDER = 2
"""Write units of each change of an order, as part of a transaction. Each change is published as an event."""

_EVENTS_OF_A_REQUEST = 10

_EVENT_QUOTAS = {
    "PutEvents": ("L-9B653E91", "PutEvents throttle limit in transactions per second"),
    "Invocations": ("L-5540C5E3", "Invocations throttle limit in transactions per second"),
}
"""Codes and names of quotas: docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html"""

_MOST_TRIGGERS = 5
"""CloudFormation accepts this many rollback triggers."""

_TIMEOUT_SECONDS = 5
_MOST_BYTES = 1_000_000

_ASK_FOR_MORE = "(Service Quotas, AWS Lambda, Concurrent executions: L-B99A9384)"


def check_warm_throughput(
    account: AwsAccount, stack_name: str, wanted: Mapping[str, Mapping[str, int]]
) -> str | None:
    """Check that DynamoDB accepts the warm throughput; otherwise the deployment would fail midway.

    The quota of a table also limits on-demand tables:
    docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode-max-throughput.html

    Returns:
        Why the check could not be made; None otherwise.

    Raises:
        UserError: A table or an index already has a higher warm throughput than the settings, or the account does not
            allow that much.
    """
    if not wanted:
        return None
    try:
        outputs = _outputs(account, stack_name)
        dynamodb: DynamoDBClient = account.client("dynamodb")
        limits = dynamodb.describe_limits()
        described = {
            name: dynamodb.describe_table(TableName=outputs[f"{name}TableName"])["Table"]
            for name in wanted
            if f"{name}TableName" in outputs
        }
    except (BotoCoreError, ClientError) as error:
        return f"cannot check whether warmThroughput fits the tables: {error}"
    settings = [(name, unit, units[unit]) for name, units in wanted.items() for unit in _UNITS]
    _refuse_more_than_the_quota(settings, limits)
    _refuse_less_than_there_is(settings, described)
    return None


def _refuse_more_than_the_quota(settings: _Throughput, limits: Mapping[str, Any]) -> None:
    most = {
        "readUnitsPerSecond": limits["TableMaxReadCapacityUnits"],
        "writeUnitsPerSecond": limits["TableMaxWriteCapacityUnits"],
    }
    too_much = [
        f"warmThroughput.{name}.{unit} is {units:,} in cdk.json, but the account allows a table {most[unit]:,}"
        for name, unit, units in settings
        if units > most[unit]
    ]
    if too_much:
        raise UserError(
            f"{'; '.join(too_much)}. Lower it, or request more (Service Quotas, Amazon DynamoDB, Table-level read "
            "throughput limit, Table-level write throughput limit)"
        )


def _refuse_less_than_there_is(settings: _Throughput, tables: Mapping[str, Any]) -> None:
    lowered = [
        f"warmThroughput.{name}.{unit} is {units:,} in cdk.json, but {place} has {has:,}"
        for name, unit, units in settings
        for place, has in _warm(tables.get(name), unit).items()
        if units < has
    ]
    if lowered:
        raise UserError(
            f"{'; '.join(lowered)}. DynamoDB never lowers it: set at least that value, or remove it from cdk.json, "
            "so that the table keeps its current value"
        )


def _warm(table: Mapping[str, Any] | None, unit: str) -> dict[str, int]:
    """Read the warm throughput of a table and its indexes, by name. The result is empty if there is no such table."""
    if table is None:
        return {}
    places = {f"the table {table['TableName']}": table}
    for index in table.get("GlobalSecondaryIndexes", ()):
        places[f"the index {index['IndexName']} of {table['TableName']}"] = index
    name = unit[0].upper() + unit[1:]
    return {place: each.get("WarmThroughput", {}).get(name, 0) for place, each in places.items()}


def _stack(cloudformation: CloudFormationClient, stack_name: str) -> Mapping[str, Any]:
    """Describe a stack. The result is empty if it does not exist."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return {}
        raise
    return cast("Mapping[str, Any]", stack)


def _outputs(account: AwsAccount, stack_name: str) -> Mapping[str, str]:
    """Read the outputs of a stack. The result is empty if it does not exist."""
    stack = _stack(account.client("cloudformation"), stack_name)
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def release_failed_creation(account: AwsAccount, stack_name: str) -> str | None:
    """Remove the deletion protection of a stack whose creation failed, so that the CDK can delete it.

    Returns:
        A note on the removal and the remaining tables, or why it was impossible; None if no creation failed.
    """
    cloudformation: CloudFormationClient = account.client("cloudformation")
    try:
        stack = _stack(cloudformation, stack_name)
        failed = stack.get("StackStatus") in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
        if not failed or not stack.get("EnableTerminationProtection"):
            return None
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_name)
        resources = [resource for page in pages for resource in page["StackResourceSummaries"]]
        cloudformation.update_termination_protection(
            StackName=stack_name, EnableTerminationProtection=False
        )
    except (BotoCoreError, ClientError) as error:
        return (
            f"cannot check for a failed first deployment of {stack_name}, or clear its protection "
            f"({error}). If there is one: aws cloudformation update-termination-protection --stack-name {stack_name} "
            "--no-enable-termination-protection"
        )
    kept = [r["PhysicalResourceId"] for r in resources if r["ResourceStatus"] == "DELETE_SKIPPED"]
    left = f" Its tables remain, empty and protected, until you delete them: {', '.join(kept)}"
    return (
        f"the first deployment of {stack_name} failed and was rolled back. Its protection has been removed, so that the CDK "
        f"can delete it and start again.{left if kept else ''}"
    )


def check_removed_queue(account: AwsAccount, stack_name: str, queue: str) -> None:
    """Check that no order waits in a queue that this deployment removes.

    Args:
        account: The account and region of the stack.
        stack_name: Its name.
        queue: Name of the output with the queue's URL, as in `OPTIONAL`.

    Raises:
        UserError: The queue or its dead-letter queue has messages, or they cannot be counted.
    """
    name, setting = OPTIONAL[queue]
    letters = dict(zip(QUEUES, DEAD_LETTERS, strict=True))[queue]
    try:
        outputs = _outputs(account, stack_name)
        if queue not in outputs:
            return
        sqs: SQSClient = account.client("sqs")
        waiting, dead = (depth_of(sqs, outputs[n]).total for n in (queue, letters))
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"cannot check whether orders are waiting in the {name}, which this deployment would remove ({setting} is false): "
            f"{without_full_stop(error)}. Deploy with the permissions cloudformation:DescribeStacks on the stack and sqs:GetQueueAttributes on the {name} "
            f"and its dead-letter queue, or keep the queue (set {setting} to true in cdk.json)"
        ) from error
    if waiting or dead:
        raise UserError(
            f"{setting} is false in cdk.json, but the {name} holds {waiting:,} messages and its dead-letter queue "
            f"{dead:,}; the deployment would lose them. Stop the senders, wait until `inventory-orders status` shows "
            "that no messages are waiting, redrive the dead letters, or delete them once they are no longer needed, and deploy again"
        )


def count_readers(
    account: AwsAccount, stack_name: str, wanted: Mapping[str, Mapping[str, int]], function: str
) -> int:
    """Estimate how many concurrent executions of a function the streams that it reads may start.

    Lambda may process several batches of each shard. AWS does not document how many shards a stream has; a table has a
    partition for each 1,000 write units or 3,000 read units per second of its warm throughput, and its stream has about
    as many open shards. docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html,
    docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput-scenarios.html
    """
    shards = 0
    tables, batches = READERS[function]
    for name in tables:
        units = _capacity(account, stack_name, name, wanted)
        shards += max(ceil(units[unit] / most) for unit, most in _PARTITION.items())
    return shards * batches


def _capacity(
    account: AwsAccount, stack_name: str, name: str, wanted: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Find out how many units per second a table supports: as many as a new one, or more if it is warm or will be."""
    warm = [
        _NEW_TABLE,
        {unit[0].upper() + unit[1:]: n for unit, n in wanted.get(name, {}).items()},
    ]
    # Without permission to read the table, assume a new one.
    with suppress(BotoCoreError, ClientError):
        physical = _outputs(account, stack_name).get(f"{name}TableName")
        if physical:
            table = account.client("dynamodb").describe_table(TableName=physical)["Table"]
            warm.append(table.get("WarmThroughput", {}))
    return {unit: max(units.get(unit, 0) for units in warm) for unit in _PARTITION}


def check_event_quotas(
    account: AwsAccount, stack_name: str, wanted: Mapping[str, Mapping[str, int]]
) -> str | None:
    """Compare EventBridge's quotas with the number of changes to orders that the table supports in a second.

    Returns:
        The quotas that are too low and what to do, or why the check was impossible; None if the quotas suffice.
    """
    capacity = _capacity(account, stack_name, "Orders", wanted)
    events = capacity["WriteUnitsPerSecond"] // _UNITS_OF_AN_ORDER
    try:
        quotas = account.client("service-quotas")
        most = {name: _quota(quotas, code) for name, (code, _) in _EVENT_QUOTAS.items()}
    except (BotoCoreError, ClientError) as error:
        return f"cannot check how many events a second EventBridge allows: {error}"
    # A full batch of changes fills its requests. Each event is delivered to one target or more.
    needs = {"PutEvents": ceil(events / _EVENTS_OF_A_REQUEST), "Invocations": events}
    short = [name for name, needed in needs.items() if most[name] < needed]
    if not short:
        return None
    allows = {"PutEvents": "requests to publish events", "Invocations": "events for targets"}
    few = " and ".join(f"{most[name]:,} {allows[name]}" for name in short)
    more = ", ".join(f"{_EVENT_QUOTAS[name][1]}: {_EVENT_QUOTAS[name][0]}" for name in short)
    return (
        f"EventBridge allows {few} a second in this account and {account.region}, but the table of orders supports {events:,} changes, "
        "and each is an event for every target that subscribes to it. Beyond the quota, events arrive late, but none is lost. "
        f"If you expect so many orders, request more (Service Quotas, Amazon EventBridge, {more})"
    )


def _quota(quotas: Any, code: str) -> int:
    """Read a quota of the account; if it has none of its own, the default of the region."""
    which = {"ServiceCode": "events", "QuotaCode": code}
    try:
        found = quotas.get_service_quota(**which)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchResourceException":
            raise
        found = quotas.get_aws_default_service_quota(**which)
    return int(found["Quota"]["Value"])


def check_issuer(issuer: str) -> str | None:
    """Compare the issuer of customers' tokens with its discovery document, which leads API Gateway to the keys.

    docs.aws.amazon.com/apigateway/latest/developerguide/http-api-jwt-authorizer.html,
    openid.net/specs/openid-connect-discovery-1_0.html

    Returns:
        Why the document or the keys cannot be read; None if all is well.

    Raises:
        UserError: The document names another issuer, so API Gateway would refuse every token.
    """
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        document = _read_json(address)
        if document["issuer"] == issuer:
            address = document["jwks_uri"]
            _read_json(address)["keys"]
            return None
    except (OSError, HTTPException, ValueError, TypeError, KeyError) as error:
        what = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        return (
            f"cannot read {address}: {what}. API Gateway needs the discovery document of jwt.issuer, and the keys that it names; "
            "without them, it refuses every token"
        )
    named = document["issuer"]
    raise UserError(
        f'jwt.issuer is "{issuer}" in cdk.json, but {address} names the issuer "{named}". The tokens contain this one, so API '
        f'Gateway would refuse each of them. Set jwt.issuer to "{named}"'
    )


_COGNITO = re.compile(r"https://cognito-idp\.([a-z0-9-]+)\.amazonaws\.com[a-z.]*/([\w-]+)/?")


def check_claims(
    account: AwsAccount, issuer: str, clients: Iterable[str], claims: Sequence[str]
) -> str | None:
    """Check that users of a Cognito pool cannot write the claims that say who they are and what they may do.

    Args:
        account: The account.
        issuer: The issuer of tokens.
        clients: The pool's app clients.
        claims: The names of the claims.

    Returns:
        Why an app client cannot be read; None if all is well, or if the issuer is not a Cognito pool.

    Raises:
        UserError: An app client lets its users write such a claim.
    """
    pool = _COGNITO.fullmatch(issuer)
    if pool is None or not claims:
        return None
    cognito = account.client("cognito-idp", pool[1])
    for client in clients:
        try:
            found = cognito.describe_user_pool_client(UserPoolId=pool[2], ClientId=client)
        except (BotoCoreError, ClientError) as error:
            return (
                f"cannot read the app client {client} of jwt.issuer: {error}. Check that its users cannot write "
                f"{', '.join(claims)}"
            )
        # Without a list, users can write all standard attributes, which have plain names:
        # docs.aws.amazon.com/cognito-user-identity-pools/latest/APIReference/API_UserPoolClientType.html
        writable = found["UserPoolClient"].get("WriteAttributes")
        for claim in claims:
            if claim in writable if writable is not None else ":" not in claim:
                raise UserError(
                    f"users of the app client {client} can write the claim {claim}, and so choose their own roles, locations or name. "
                    "Remove it from the client's writable attributes, or use another claim"
                )
    return None


def check_desk_client(
    account: AwsAccount, stack_name: str, issuer: str, client: str, claims: Sequence[str]
) -> str | None:
    """Check that the app client of the desk fits its sign-in, if the issuer is a Cognito pool.

    docs.aws.amazon.com/cognito-user-identity-pools/latest/APIReference/API_UserPoolClientType.html

    Args:
        account: The account.
        stack_name: The name of the stack.
        issuer: The issuer of tokens.
        client: The id of the app client.
        claims: The names of the claims that the API reads.

    Returns:
        What to change in the client; None if all is well, or if it cannot be checked.

    Raises:
        UserError: The client cannot be used by a browser.
    """
    pool = _COGNITO.fullmatch(issuer)
    if pool is None:
        return None
    try:
        cognito = account.client("cognito-idp", pool[1])
        found = cognito.describe_user_pool_client(UserPoolId=pool[2], ClientId=client)
        url = _outputs(account, stack_name).get("DeskUrl")
    except (BotoCoreError, ClientError) as error:
        return f"cannot read the app client {client} of the desk: {error}"
    has: Mapping[str, Any] = found["UserPoolClient"]
    if "ClientSecret" in has:
        raise UserError(
            f"the app client {client} of the desk has a secret, which a browser cannot keep: create one without a secret"
        )
    to_do = [what for what, is_wrong in _wrong_with(has, url, claims).items() if is_wrong]
    return f"the app client {client} of the desk: {'; '.join(to_do)}" if to_do else None


def _wrong_with(
    client: Mapping[str, Any], url: str | None, claims: Sequence[str]
) -> dict[str, bool]:
    """Say of each change to the desk's app client whether it is needed. Without a deployment, its `url` is unknown."""
    custom = [claim for claim in claims if claim.startswith("custom:")]
    unreadable = {*custom} - {*client.get("ReadAttributes", custom)}
    flows, scopes = (client.get(f"AllowedOAuth{name}", ()) for name in ("Flows", "Scopes"))
    address = url or "in the output DeskUrl, after this deployment"
    return {
        "allow the authorization code grant": "code" not in flows,
        "do not allow the implicit grant, which puts tokens into addresses": "implicit" in flows,
        "allow the scope openid": "openid" not in scopes,
        f"add the callback URL {address}": url not in client.get("CallbackURLs", ()),
        f"add the sign-out URL {address}": url not in client.get("LogoutURLs", ()),
        "enable token revocation": not client.get("EnableTokenRevocation"),
        f"make {', '.join(sorted(unreadable))} readable": bool(unreadable),
    }


def _read_json(address: str) -> Any:
    if not address.startswith(("https://", "http://")):
        raise ValueError("it is not an https address")
    with urlopen(address, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked above
        return json.loads(answer.read(_MOST_BYTES))


def find_rollback_triggers(
    account: AwsAccount, stack_name: str, titles: Collection[str]
) -> tuple[list[str] | None, str | None]:
    """Find the alarms that are to roll back an update of a stack: the first five that exist and are off.

    An alarm that is already on could roll back the update that fixes its cause. A missing one would make the update fail:
    docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_RollbackTrigger.html

    Args:
        account: The account and region of the stack.
        stack_name: Its name.
        titles: The alarms' names without the name of the stack, the most important first.

    Returns:
        The ARNs of the alarms, or None if there is no such stack yet or the alarms cannot be read; and a note, if
        alarms are left out.
    """
    names = [f"{stack_name}-{title}" for title in titles]
    try:
        answer = account.client("cloudwatch").describe_alarms(
            AlarmNames=names, AlarmTypes=["MetricAlarm"]
        )
    except (BotoCoreError, ClientError) as error:
        return None, f"no alarm rolls back this update, because the alarms cannot be read: {error}"
    alarms = sorted(answer["MetricAlarms"], key=lambda alarm: names.index(alarm["AlarmName"]))
    if not alarms:
        return None, None
    on = [alarm["AlarmName"] for alarm in alarms if alarm["StateValue"] == "ALARM"]
    off = [alarm["AlarmArn"] for alarm in alarms if alarm["AlarmName"] not in on]
    note = f"these alarms are already on, so they do not roll back this update: {', '.join(on)}"
    return off[:_MOST_TRIGGERS], note if on else None


def check_concurrency(
    account: AwsAccount,
    stack_name: str,
    needs: Mapping[str, int],
    callers: int,
    reserved: Mapping[str, int],
) -> str | None:
    """Compare the account's quota of concurrent executions with the functions' needs.

    Args:
        account: The account and region of the stack.
        stack_name: Its name.
        needs: Concurrent executions, by the queue or function that needs them.
        callers: The number of callers of the HTTP API per second that may have to wait; 0 without an API.
        reserved: Concurrent executions to reserve, by the setting in `RESERVES` that reserves them.

    Returns:
        The quota that is too low and what to do, or why the check was impossible; None if the quotas suffice.

    Raises:
        UserError: Lambda would refuse the reservation midway through the deployment.
    """
    total, taken = sum(needs.values()), sum(reserved.values())
    try:
        limits = account.client("lambda").get_account_settings()["AccountLimit"]
        limit, free = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
        free += _reserved_now(account, stack_name, reserved)
    except (BotoCoreError, ClientError) as error:
        return (
            f"cannot check whether the account allows {total} concurrent executions of Lambda (for queues and streams) and "
            f"the callers of the API: {error}"
        )
    if reserved and free - taken < _NEVER_RESERVED:
        each = " and ".join(f"{setting} ({count})" for setting, count in reserved.items())
        raise UserError(
            f"{each} in cdk.json would reserve {taken} concurrent executions of Lambda, but only {free} of the account's are "
            f"unreserved in {account.region}, and {_NEVER_RESERVED} of them must stay unreserved. Lower or remove what reserves "
            f"them, or request more {_ASK_FOR_MORE}"
        )
    free -= taken
    if total > free:
        each = ", ".join(f"{name} {count}" for name, count in needs.items())
        return (
            f"the account allows {limit} concurrent executions of Lambda in {account.region}, {free} of them unreserved, "
            f"but queues and streams may use {total} ({each}). Under load Lambda then throttles every function without reserved "
            "concurrency, this stack's and others': messages wait longer, but none is lost. Request more "
            f"{_ASK_FOR_MORE}, or lower maximumConcurrency in cdk.json"
        )
    waiting = callers * LONGEST_WAIT_SECONDS
    if API_RESERVES not in reserved and total + waiting > free:
        return (
            f"waiting callers of the API may use {waiting:,} concurrent executions of Lambda ({callers} a second, "
            f"{LONGEST_WAIT_SECONDS} s each), and queues and streams {total}, but only {free:,} are unreserved. Waiting callers can starve the "
            "workers that they wait for. Reserve a part for the API (apiLimits.concurrentExecutions in cdk.json), lower "
            f"apiLimits.requestsPerSecond, or request more {_ASK_FOR_MORE}"
        )
    return None


def _reserved_now(account: AwsAccount, stack_name: str, reserved: Collection[str]) -> int:
    """Count the concurrent executions that these settings reserve already."""
    if not reserved:
        return 0
    outputs, functions = _outputs(account, stack_name), account.client("lambda")
    names = [outputs[RESERVES[setting]] for setting in reserved if RESERVES[setting] in outputs]
    found = [functions.get_function_concurrency(FunctionName=name) for name in names]
    return sum(each.get("ReservedConcurrentExecutions", 0) for each in found)
