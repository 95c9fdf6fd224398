"""Checks that ask AWS about the stack: everything is as deployed, and monitoring works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from inventory_orders.domain.rejection import REASONS_OF_ORDERS
from inventory_orders.invocation.telemetry import NAMESPACE

from ..aws import LIVE
from ..words import counted
from .deployed import Deployed, Properties, differences
from .report import Line, judged, not_here
from .run import Run, names
from .traffic import places

_LOOK_SECONDS = 10.0

# Actions that a role has only if the template grants them, by the service of a resource.
_DENIED = {
    "dynamodb": ("dynamodb:Scan", "dynamodb:DeleteTable"),
    "sqs": ("sqs:PurgeQueue", "sqs:SetQueueAttributes"),
}


def deployment(run: Run) -> list[Line]:
    """The last deployment succeeded."""
    stack = run.deployed.stack
    status = stack["StackStatus"]
    problems = []
    if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        problems.append(f"{run.stack_name} is {status}: deploy it again, or wait until it is done")
    at = stack.get("LastUpdatedTime", stack["CreationTime"])
    return judged("deployment", problems, f"{status} since {at:%Y-%m-%d %H:%M} UTC")


def functions(run: Run) -> list[Line]:
    """The alias of every function points at an active version, as deployed."""
    found = run.deployed.each("AWS::Lambda::Function")
    problems, loops, runtimes = [], [], set()
    aliases = run.deployed.of_type("AWS::Lambda::Alias").values()
    versions = {alias["FunctionName"]: alias["FunctionVersion"] for alias in aliases}
    for title, name, properties in found:
        actual = run.aws.functions.get_function_configuration(FunctionName=name, Qualifier=LIVE)
        wanted = {
            "State": "Active",
            "LastUpdateStatus": "Successful",
            "Version": versions[name],
            **{p: properties[p] for p in _OF_A_FUNCTION if p in properties},
        }
        layers = [layer["Arn"] for layer in actual.get("Layers", [])]
        problems += differences(title, wanted, {**actual, "Layers": layers})
        limit = run.aws.functions.get_function_concurrency(FunctionName=name)
        if limit.get("ReservedConcurrentExecutions") == 0:
            problems.append(f"{title} is stopped: its reserved concurrency is 0")
        loop = run.aws.functions.get_function_recursion_config(FunctionName=name)
        allowed = {"RecursiveLoop": properties.get("RecursiveLoop", "Terminate")}
        loops += differences(title, allowed, loop)
        runtimes.add(f"{actual['Runtime']}, {' '.join(actual.get('Architectures', []))}")
    saw = (
        f"{len(found)} Active, updated; {names(runtimes)}; version, layer, role, memory, timeout, environment as "
        "deployed"
    )
    lines = judged("functions", problems, saw)
    if run.embedded:
        return lines + not_here("recursion", "not on the embedded AWS: it drops `RecursiveLoop`")
    return lines + judged("recursion", loops, "recursive loop detection as deployed")


_OF_A_FUNCTION = (
    *("Runtime", "Handler", "MemorySize", "Timeout", "Role", "Layers"),
    *("Environment", "Architectures", "TracingConfig"),
)


def mappings(run: Run) -> list[Line]:
    """Every queue and every stream feeds its function."""
    found = run.deployed.each("AWS::Lambda::EventSourceMapping")
    problems = []
    for _, uuid, properties in found:
        actual: Any = run.aws.functions.get_event_source_mapping(UUID=uuid)
        source = _source_of(run.deployed, properties["EventSourceArn"])
        wanted = {p: properties[p] for p in _OF_A_MAPPING if p in properties}
        wanted |= {"State": "Enabled", "FunctionName": properties["FunctionName"]}
        actual = {**actual, "FunctionName": actual["FunctionArn"].split(":", 6)[-1]}
        problems += differences(f"the mapping of {source}", wanted, actual)
    saw = f"{len(found)} Enabled; batch size, window, concurrency and handling of failures as deployed"
    return judged("functions are fed", problems, saw)


_OF_A_MAPPING = (
    *("BatchSize", "MaximumBatchingWindowInSeconds", "ScalingConfig"),
    *("FunctionResponseTypes", "EventSourceArn"),
    *("MaximumRecordAgeInSeconds", "BisectBatchOnFunctionError", "ParallelizationFactor"),
    *("MaximumRetryAttempts", "DestinationConfig", "FilterCriteria"),
)


def _source_of(deployed: Deployed, arn: str) -> str:
    for logical, stream in deployed.streams.items():
        if stream == arn:
            return f"the stream of {deployed.title(logical)}"
    logical = next(
        name for name in deployed.of_type("AWS::SQS::Queue") if deployed.arn(name) == arn
    )
    return deployed.title(logical)


def roles(run: Run) -> list[Line]:
    """Every function has the permissions that it needs and no others, according to IAM's policy simulator."""
    deployed, iam = run.deployed, run.client("iam")
    needed = _needed_actions(deployed)
    role_of = {deployed.physical[name]: name for name in deployed.of_type("AWS::IAM::Role")}

    def simulate(role: str, resource: str) -> dict[str, bool]:
        answer = iam.simulate_principal_policy(
            PolicySourceArn=deployed.arn(role_of[role]),
            ActionNames=sorted({*needed[role, resource], *_denied_on(resource)}),
            # Any stream of a log group represents all of them.
            ResourceArns=[resource.replace(":*", ":log-stream:any")],
        )
        return {
            result["EvalActionName"]: result["EvalDecision"] == "allowed"
            for result in answer["EvaluationResults"]
        }

    problems, granted, denied = [], 0, 0
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(simulate, *zip(*needed, strict=True))
        for ((role, resource), actions), allowed in zip(needed.items(), answers, strict=True):
            title = deployed.title(role_of[role])
            where = f"on {resource.removesuffix(':*').rsplit(':', 1)[-1].rsplit('/', 1)[-1]}"
            others = [action for action in _denied_on(resource) if action not in actions]
            problems += [
                f"{title} may not {action} {where}, but needs it"
                for action in sorted(actions)
                if not allowed.get(action)
            ]
            problems += [
                f"{title} may {action} {where}, but does not need it"
                for action in others
                if allowed.get(action)
            ]
            granted += len(actions)
            denied += len(others)
    count = len({role for role, _ in needed})
    saw = f"{count} roles: all {granted} needed permissions are granted, {denied} others are denied"
    return judged("roles", problems, saw)


def _needed_actions(deployed: Deployed) -> dict[tuple[str, str], set[str]]:
    """Return the actions that the template allows, by role and resource."""
    needed: dict[tuple[str, str], set[str]] = {}
    for policy in deployed.of_type("AWS::IAM::Policy").values():
        statements = policy["PolicyDocument"]["Statement"]
        allowed = [statement for statement in statements if statement["Effect"] == "Allow"]
        for role, statement in product(policy["Roles"], allowed):
            for resource in _many(statement["Resource"]):
                needed.setdefault((role, resource), set()).update(_many(statement["Action"]))
    return needed


def _denied_on(resource: str) -> Sequence[str]:
    # A permission may apply to all resources: "*".
    return _DENIED.get(next(iter(resource.split(":")[2:3]), ""), ())


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def queues(run: Run) -> list[Line]:
    """Every queue is encrypted, accepts only TLS, and moves failed messages to its dead-letter queue."""
    found = run.deployed.each("AWS::SQS::Queue")
    problems, redriven = [], 0
    for title, url, properties in found:
        answer: Any = run.aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        attributes = answer["Attributes"]
        actual = {**attributes, "RedrivePolicy": json.loads(attributes.get("RedrivePolicy", "{}"))}
        redriven += "RedrivePolicy" in properties
        wanted = {name: value for name, value in properties.items() if name != "Tags"}
        problems += differences(title, wanted, actual)
        if actual.get("SqsManagedSseEnabled") != "true" and not actual.get("KmsMasterKeyId"):
            problems.append(f"{title} is not encrypted")
        if not _tls_only(actual.get("Policy", "{}")):
            problems.append(f"{title} accepts messages without TLS: its policy does not deny them")
    saw = (
        f"{len(found)} encrypted, TLS only; retention and visibility as deployed; "
        f"{redriven} redrive policies in place"
    )
    return judged("queues", problems, saw)


def _tls_only(policy: str) -> bool:
    """Whether a policy denies every action of every caller without TLS."""
    return any(
        statement["Effect"] == "Deny"
        and statement.get("Principal") in ("*", {"AWS": "*"})
        and str(statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")).lower()
        == "false"
        for statement in json.loads(policy).get("Statement", [])
    )


def tables(run: Run) -> list[Line]:
    """Every table has its keys, indexes and stream, and is encrypted, recoverable and protected as deployed."""
    found = run.deployed.each("AWS::DynamoDB::GlobalTable")
    problems, hidden = [], []
    for title, name, properties in found:
        actual: Any = run.aws.dynamodb.describe_table(TableName=name)["Table"]
        wanted: dict[str, Any] = {"TableStatus": "ACTIVE", "KeySchema": properties["KeySchema"]}
        stream = properties.get("StreamSpecification")
        if stream:
            wanted["StreamSpecification"] = {"StreamEnabled": True, **stream}
        problems += differences(title, wanted, actual)
        indexes = {i["IndexName"]: i for i in actual.get("GlobalSecondaryIndexes", [])}
        for index in properties.get("GlobalSecondaryIndexes", []):
            seen = indexes.get(index["IndexName"], {})
            if not seen or seen.get("IndexStatus", "ACTIVE") != "ACTIVE":
                problems.append(f"the index {index['IndexName']} of {title} is missing")
        if not run.embedded:
            hidden += list(_protection(run, title, name, properties, actual))
    saw = f"{len(found)} ACTIVE; keys, index and stream as deployed"
    lines, name = judged("tables", problems, saw), "tables are protected"
    if run.embedded:
        why = "not on the embedded AWS: it drops encryption, recovery and deletion protection"
        return lines + not_here(name, why)
    saw = f"{len(found)} encrypted, with point-in-time recovery; deletion protection as deployed"
    return lines + judged(name, hidden, saw)


def _protection(
    run: Run, title: str, name: str, properties: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[str]:
    replica = properties["Replicas"][0]
    key = replica.get("SSESpecification", {}).get("KMSMasterKeyId")
    # If DynamoDB owns the key, the table's description does not mention encryption.
    wanted = {"Status": "ENABLED", "SSEType": "KMS", "KMSMasterKeyArn": key} if key else {}
    described = actual.get("SSEDescription", {})
    if not key and described.get("Status", "DISABLED") != "DISABLED":
        yield f"{title} is encrypted with {described.get('KMSMasterKeyArn')}, not with DynamoDB's own key"
    yield from differences(f"{title} encryption", wanted, described)
    protected = {"DeletionProtectionEnabled": replica.get("DeletionProtectionEnabled", False)}
    yield from differences(title, protected, actual)
    backups = run.aws.dynamodb.describe_continuous_backups(TableName=name)
    status = backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
    if status["PointInTimeRecoveryStatus"] != "ENABLED":
        yield f"{title} cannot be restored to a point in time: recovery is off"


def logs(run: Run) -> list[Line]:
    """Every log group exists, and has the deployed retention."""
    found = run.deployed.each("AWS::Logs::LogGroup")
    problems, days = [], set()
    for title, name, properties in found:
        groups = run.aws.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        kept = next((g.get("retentionInDays") for g in groups if g["logGroupName"] == name), None)
        wanted = properties["RetentionInDays"]
        days.add(str(wanted))
        if kept != wanted:
            problems.append(f"{title} keeps events for {kept} days, not {wanted}")
    return judged("logs", problems, f"{len(found)} log groups, kept for {names(days)} days")


def dashboard(run: Run) -> list[Line]:
    """The dashboard exists, and is as deployed."""
    deployed = run.deployed
    if not deployed.dashboards:
        return not_here("dashboard", "the stack has none: `monitoring` is basic in cdk.json")
    problems, drawn, known = [], 0, _known(deployed)
    for logical, properties in deployed.dashboards.items():
        name = deployed.physical[logical]
        cloudwatch = run.client("cloudwatch")
        body = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
        drawn += len(_drawn(body))
        if body != json.loads(properties["DashboardBody"]):
            problems.append(f"{name} was changed since the deployment")
        unknown = [
            f"{metric} of {value}"
            for _, metric, dimensions in _drawn(body)
            for value in dimensions.values()
            if value not in known
        ]
        if unknown:
            problems.append(f"it shows metrics of other stacks: {names(unknown)}")
    return judged("dashboard", problems, f"as deployed; shows {drawn} metrics, all of this stack")


def _known(deployed: Deployed) -> set[str]:
    """Return valid values of dimensions: names of the stack's resources, and values that its functions send."""
    known = {physical.rsplit("/", 1)[-1] for physical in deployed.physical.values()}
    known |= {variables["POWERTOOLS_SERVICE_NAME"] for variables in deployed.variables()}
    for properties in deployed.of_type("AWS::DynamoDB::GlobalTable").values():
        known |= {index["IndexName"] for index in properties.get("GlobalSecondaryIndexes", [])}
    return known | {*REASONS_OF_ORDERS}


Metric = tuple[str, str, dict[str, str]]


def _drawn(body: Mapping[str, Any]) -> list[Metric]:
    """Return the metrics that a dashboard shows: namespace, name and dimensions."""
    found = []
    for widget in body["widgets"]:
        for entry in widget["properties"].get("metrics", []):
            path = [part for part in entry if isinstance(part, str)]
            if path:
                namespace, name, *dimensions = path
                found.append(
                    (namespace, name, dict(zip(dimensions[::2], dimensions[1::2], strict=True)))
                )
    return found


def alarms(run: Run) -> list[Line]:
    """Every alarm is as deployed, has its actions enabled, has a state, and is off."""
    found = run.deployed.each("AWS::CloudWatch::Alarm")
    title_of = {name: title for title, name, _ in found}
    problems = []
    described = _describe_alarms(run, list(title_of))
    for title, name, properties in found:
        actual = described.get(name)
        if actual is None:
            problems.append(f"{title} is gone")
            continue
        wanted = _wanted_of(properties, embedded=run.embedded)
        problems += differences(title, _with_queries_by_id(wanted), _with_queries_by_id(actual))
    lines, off = (
        judged("alarms", problems, f"{len(found)} as deployed, actions enabled"),
        "alarms are off",
    )
    if run.embedded:
        return lines + not_here(off, "not on the embedded AWS: it does not evaluate alarms")
    left = _wait_until_off(run, title_of)
    problems = [f"{title_of[name]} {why}" for name, why in sorted(left.items())]
    return lines + judged(off, problems, f"{len(title_of)} in OK, or waiting for a first value")


def _wanted_of(alarm: Properties, *, embedded: bool) -> Properties:
    """The properties that a deployed alarm must have.

    The embedded AWS turns metric math into a plain metric, and forgets how long an alarm warms up.
    """
    left_out = {"Tags", "Metrics", "WarmUpConfiguration"} if embedded else {"Tags"}
    wanted = {name: value for name, value in alarm.items() if name not in left_out}
    return wanted | {"ActionsEnabled": True}


def _with_queries_by_id(alarm: Properties) -> Properties:
    """Index the metric-math queries of an alarm by id, because CloudWatch adds defaults to each."""
    if not alarm.get("Metrics"):
        return alarm
    return {**alarm, "Metrics": {query["Id"]: query for query in alarm["Metrics"]}}


def _describe_alarms(run: Run, wanted: Sequence[str]) -> dict[str, Any]:
    client = run.client("cloudwatch")
    return {
        alarm["AlarmName"]: alarm
        for start in range(0, len(wanted), 100)
        for alarm in client.describe_alarms(AlarmNames=wanted[start : start + 100], MaxRecords=100)[
            "MetricAlarms"
        ]
    }


def _wait_until_off(run: Run, wanted: Collection[str]) -> dict[str, str]:
    """Wait until all alarms have states, and alarms that this run turned on are off again.

    Returns the remaining alarms with the reasons.
    """

    def wrong() -> dict[str, str]:
        now = _describe_alarms(run, list(wanted))
        return {name: why for name, alarm in now.items() if (why := _wrong_state(alarm))}

    # Do not wait for an alarm that was already on before this run.
    for alarm in _describe_alarms(run, list(wanted)).values():
        is_old = alarm["StateUpdatedTimestamp"].timestamp() < run.began
        if is_old and alarm["StateValue"] == "ALARM":
            return wrong()
    return _wait_for_metrics(run, wrong, lambda on: f"{counted(len(on), 'alarm')} to be off")


def _wrong_state(alarm: Mapping[str, Any]) -> str:
    if alarm["StateValue"] == "ALARM":
        return f"is on: {alarm['StateReason']}"
    # Such an alarm keeps its state when data is missing, so it has no state before its metric's first value. The same
    # may be true of metric math: its gaps are filled, but AWS does not document the result if there is no value at all.
    # An alarm that warms up waits for values first.
    keeps = alarm.get("TreatMissingData", "missing") in ("ignore", "missing")
    keeps |= not alarm.keys().isdisjoint(("Metrics", "WarmUpConfiguration"))
    if alarm["StateValue"] == "INSUFFICIENT_DATA" and not keeps:
        return "has never had a value of its metric"
    return ""


def _wait_for_metrics(
    run: Run, look: Callable[[], dict[str, str]], what: Callable[[dict[str, str]], str]
) -> dict[str, str]:
    """Repeat a check until it finds nothing wrong, for as long as CloudWatch may need. Returns the last findings."""
    began = time.monotonic()
    while wrong := look():
        waited = time.monotonic() - began
        if waited >= run.metrics_patience:
            break
        run.say(
            f"CloudWatch: {what(wrong)} ({_minutes(waited)} of at most {_minutes(run.metrics_patience)})"
        )
        time.sleep(min(_LOOK_SECONDS, run.metrics_patience))
    return wrong


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def notifies(run: Run) -> list[Line]:
    """Every alarm sends email: CloudWatch may publish, and the subscription is confirmed."""
    deployed, name = run.deployed, "alarms are mailed"
    topics = {deployed.physical[logical] for logical in deployed.of_type("AWS::SNS::Topic")}
    if not topics:
        return not_here(name, "the stack sends no mail: `alarmEmail` is not set in cdk.json")
    wanted = [deployed.physical[logical] for logical in deployed.of_type("AWS::CloudWatch::Alarm")]
    described = _describe_alarms(run, wanted)
    silent = [n for n in wanted if not topics & set(described.get(n, {}).get("AlarmActions", []))]
    problems = []
    if silent:
        problems.append(f"{counted(len(silent), 'alarm')} without a recipient: {names(silent)}")
    confirmed = 0
    for topic in topics:
        subscriptions, faults = _describe_topic(run.client("sns"), topic)
        problems += faults
        confirmed += len(subscriptions)
    saw = f"{len(wanted)} alarms have actions, CloudWatch may publish, {confirmed} subscriptions are confirmed"
    return judged(name, problems, saw)


def _describe_topic(sns: Any, topic: str) -> tuple[list[Any], list[str]]:
    """Find the confirmed subscriptions of a topic, and the reasons why it cannot mail alarms."""
    policy = sns.get_topic_attributes(TopicArn=topic)["Attributes"].get("Policy", "{}")
    subscriptions = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    confirmed = [each for each in subscriptions if each["SubscriptionArn"].startswith("arn:")]
    problems = [
        f"{each['Endpoint']} has not confirmed the subscription: open the link in AWS's mail"
        for each in subscriptions
        if each not in confirmed
    ]
    if not _lets_cloudwatch_publish(policy):
        problems.insert(0, "CloudWatch may not publish to the topic, so no alarm is mailed")
    if not subscriptions:
        problems.append("the topic has no subscription")
    return confirmed, problems


def _lets_cloudwatch_publish(policy: str) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and "cloudwatch.amazonaws.com" in _many(statement["Principal"].get("Service", []))
        and any(
            str(action).lower() in ("sns:publish", "sns:*") for action in _many(statement["Action"])
        )
        for statement in json.loads(policy).get("Statement", [])
        if isinstance(statement.get("Principal"), Mapping)
    )


def metrics(run: Run) -> list[Line]:
    """CloudWatch has this run's metrics: the handlers' own, and AWS's metrics that the alarms and the dashboard use."""
    if run.embedded:
        return not_here(
            "metrics arrive",
            "not on the embedded AWS: it has no metrics of handlers' logs, queues and tables",
        )
    if not run.placed:
        places(run)
    deployed = run.deployed
    wanted = _wanted_metrics(run, deployed)

    def missing() -> dict[str, str]:
        return _missing(run, wanted)

    left = _wait_for_metrics(
        run, missing, lambda m: f"{len(m)} metrics to arrive, such as {next(iter(m))}"
    )
    problems = [f"{metric} {why}" for metric, why in left.items()]
    drawn = _drawn_by_handlers(deployed)
    pages = run.client("cloudwatch").get_paginator("list_metrics").paginate(Namespace=NAMESPACE)
    there = drawn & {metric["MetricName"] for page in pages for metric in page["Metrics"]}
    saw = f"{len(wanted)} have values from this run"
    if drawn:
        saw += (
            f", OrdersPlaced {run.placed:,} or more; CloudWatch has {len(there)} of {len(drawn)} metrics of the "
            "handlers that the dashboard shows, the rest did not occur yet"
        )
    return judged("metrics arrive", problems, saw)


def _drawn_by_handlers(deployed: Deployed) -> set[str]:
    return {
        name
        for properties in deployed.dashboards.values()
        for namespace, name, _ in _drawn(json.loads(properties["DashboardBody"]))
        if namespace == NAMESPACE
    }


def _wanted_metrics(run: Run, deployed: Deployed) -> dict[str, tuple[Metric, float]]:
    """Return the metrics that this run must have changed, with the minimum sum of each."""
    (service,) = {variables["POWERTOOLS_SERVICE_NAME"] for variables in deployed.variables()}
    outputs = run.aws.outputs
    own = {"service": service}
    queue = {"QueueName": outputs["OrderQueueUrl"].rsplit("/", 1)[-1]}
    function = {"FunctionName": outputs["PlaceOrdersFunctionName"]}
    table = {"TableName": outputs["OrdersTableName"]}
    # If no dashboard shows these metrics, the handlers do not emit them.
    of_handlers = (
        {"OrdersPlaced": run.placed, "ConditionalWrites": 1} if deployed.dashboards else {}
    )
    return {
        **{name: ((NAMESPACE, name, own), least) for name, least in of_handlers.items()},
        "Invocations of place_orders": (("AWS/Lambda", "Invocations", function), 1),
        "NumberOfMessagesSent of OrderQueue": (("AWS/SQS", "NumberOfMessagesSent", queue), 1),
        "write units of Orders": (("AWS/DynamoDB", "ConsumedWriteCapacityUnits", table), 1),
    }


def _missing(run: Run, wanted: Mapping[str, tuple[Metric, float]]) -> dict[str, str]:
    """Return the metrics that have not reached their sums, with the sums so far."""
    begin = datetime.fromtimestamp(run.began, UTC).replace(second=0, microsecond=0)
    queries = [
        {
            "Id": f"m{index}",
            "MetricStat": {
                "Metric": {
                    "Namespace": namespace,
                    "MetricName": name,
                    "Dimensions": [{"Name": n, "Value": v} for n, v in dimensions.items()],
                },
                "Period": 60,
                "Stat": "Sum",
            },
        }
        for index, ((namespace, name, dimensions), _) in enumerate(wanted.values())
    ]
    answer = run.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries, StartTime=begin, EndTime=datetime.now(UTC) + timedelta(minutes=1)
    )
    sums = {result["Id"]: sum(result["Values"]) for result in answer["MetricDataResults"]}
    return {
        title: f"is at {sums.get(f'm{index}', 0):,.0f}, not {least:,.0f}"
        for index, (title, (_, least)) in enumerate(wanted.items())
        if sums.get(f"m{index}", 0) < least
    }


CHECKS = {
    check.__name__: check
    for check in (
        *(deployment, functions, mappings, roles, queues, tables, logs),
        *(dashboard, notifies, metrics, alarms),
    )
}
"""The checks by name, in the sequence in which they run. The checks that wait for CloudWatch come last."""
