"""Every permission between services that the stack sets up, in one table: who may do what, and what grants it.

An emulator forgives missing permissions, but AWS does not: an alarm is not mailed, a queue is not polled, or a trace is
lost. So the table is checked in both directions: a permission without a line fails, and so does a line without a permission. A
resource of an unknown kind fails too.

The following need no permission, and so have no line:

- A request by one of the account's own roles needs a statement of the role *or* of the resource, so tables and queues
  need not allow their functions. A service, such as CloudWatch, needs the resource's statement.
  docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
- SQS moves messages to a dead-letter queue of the same account without a redrive allow policy: the default is `allowAll`.
  docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
- No role needs KMS permissions. The keys of SQS belong to SQS (SSE-SQS), the tables' key to DynamoDB. With the setting
  `tableKey`, the key's own policy lets this account use it through DynamoDB: docs/reference.md.
  docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-server-side-encryption.html,
  docs.aws.amazon.com/amazondynamodb/latest/developerguide/EncryptionAtRest.html
- DynamoDB writes the index and the stream of a table by itself.
"""

import copy
import itertools
import json
from collections import defaultdict

import pytest

from tests.support.template import EVERYTHING, synthesise

# Who | may do what | to what | granted by. Actions are separated by spaces, several principals or resources by commas.
ACCESS = """
lambda.amazonaws.com     | sts:AssumeRole          | the role of every function | trust policy
# The HTTP API. A route without AWS_IAM or JWT would be public.
everybody with a signature | execute-api:Invoke | GET /orders, POST /orders, GET /orders/{orderId} | route to Api live
everybody with a signature | execute-api:Invoke | POST /orders/{orderId}/confirm, POST /orders/{orderId}/extend, POST /orders/{orderId}/fulfil | route to Api live
everybody with a signature | execute-api:Invoke | POST /orders/{orderId}/cancel, POST /orders/{orderId}/returns, GET /products, GET /barcodes | route to Api live
everybody with a signature | execute-api:Invoke | GET /products/{productId}, GET /products/{productId}/adjustments, GET /products/{productId}/history | route to Api live
everybody with a signature | execute-api:Invoke | GET /stock, GET /stock/{productId}, GET /transfers, GET /counts, GET /about, GET /today, GET /changes | route to Api live
everybody with a signature | execute-api:Invoke | POST /products, PATCH /products/{productId}, DELETE /products/{productId} | route to ManageProducts live
everybody with a signature | execute-api:Invoke | POST /products/{productId}/discontinue, POST /products/{productId}/list-again | route to ManageProducts live
everybody with a signature | execute-api:Invoke | POST /products/{productId}/adjustments, POST /products/{productId}/transfers | route to AdjustStock live
everybody with a signature | execute-api:Invoke | POST /counts | route to CountStock live
apigateway.amazonaws.com | lambda:InvokeFunction | Api live, ManageProducts live, AdjustStock live, CountStock live | permission, for routes of ApiHttpApi
ApiHttpApi               | logs to                 | ApiAccessLog            | stage $default
Api                      | dynamodb:Query          | byUser, byStatus, byLatePayment, byLevel, byCount, byTime, byTransfer, byStocktake, byReference | role
Api                      | sqs:SendMessage         | OrderQueue, OrderQueueExpress | role
# docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
scheduler.amazonaws.com  | sts:AssumeRole          | SweepScheduleRole       | trust policy, for this account
SweepSchedule            | lambda:InvokeFunction   | Sweep live              | role
SweepSchedule            | invokes                 | Sweep live              | schedule, as SweepScheduleRole
# Lambda polls with the role of the function: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
OrderQueue, OrderQueueFifo, OrderQueueExpress | feeds | PlaceOrders live      | event source mapping
StockQueue               | feeds                   | AdjustStock live        | event source mapping
CatalogueQueue           | feeds                   | ManageProducts live     | event source mapping
OrderCommandQueue, ExpiryQueue | feeds             | ChangeOrders live       | event source mapping
# Queues whose messages may be early: one that has waited for long is sent again.
PlaceOrders              | CONSUME                 | OrderQueue, OrderQueueFifo, OrderQueueExpress | role
AdjustStock              | CONSUME sqs:SendMessage | StockQueue              | role
ManageProducts           | CONSUME sqs:SendMessage | CatalogueQueue          | role
ChangeOrders             | CONSUME sqs:SendMessage | OrderCommandQueue       | role
ChangeOrders             | CONSUME                 | ExpiryQueue             | role
# docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html
Orders stream, Products stream | feeds             | PublishEvents live      | event source mapping
PublishEvents            | READ_STREAM             | Orders stream, Products stream | role
PublishEvents            | events:PutEvents        | EventBus                | role
# Records that a stream gives up, and events that the function cannot publish.
Orders stream, Products stream | gives up          | UndeliverableEventsQueue    | destination on failure
PublishEvents            | sqs:SendMessage         | UndeliverableEventsQueue    | role
# Movements are recorded from the same stream, but events do not wait for them.
Orders stream            | feeds                   | RecordMovements live    | event source mapping
RecordMovements          | READ_STREAM             | Orders stream           | role
Orders stream            | gives up                | UnrecordedMovementsQueue    | destination on failure
RecordMovements          | sqs:SendMessage         | UnrecordedMovementsQueue    | role
RecordMovements          | dynamodb:BatchWriteItem dynamodb:UpdateItem | Movements | role
Sweep                    | dynamodb:BatchWriteItem dynamodb:Query dynamodb:UpdateItem | Movements | role
Api                      | dynamodb:Query          | Movements               | role
# Messages that SQS has delivered too often.
OrderQueue               | moves dead letters      | OrderDeadLetterQueue        | redrive policy
OrderQueueFifo           | moves dead letters      | OrderFifoDeadLetterQueue    | redrive policy
OrderQueueExpress        | moves dead letters      | OrderExpressDeadLetterQueue | redrive policy
StockQueue               | moves dead letters      | StockDeadLetterQueue        | redrive policy
CatalogueQueue           | moves dead letters      | CatalogueDeadLetterQueue    | redrive policy
OrderCommandQueue        | moves dead letters      | OrderCommandDeadLetterQueue | redrive policy
ExpiryQueue              | moves dead letters      | ExpiryDeadLetterQueue       | redrive policy
# Messages that a handler finds invalid.
PlaceOrders              | sqs:SendMessage         | OrderDeadLetterQueue, OrderFifoDeadLetterQueue, OrderExpressDeadLetterQueue | role
AdjustStock              | sqs:SendMessage         | StockDeadLetterQueue        | role
ManageProducts           | sqs:SendMessage         | CatalogueDeadLetterQueue    | role
ChangeOrders             | sqs:SendMessage         | OrderCommandDeadLetterQueue, ExpiryDeadLetterQueue | role
# Holds that are about to end.
Sweep                    | dynamodb:Query          | byExpiry, byStatus, byLatePayment | role
# Transfers that have ended.
Sweep                    | dynamodb:Query          | byTransfer              | role
Sweep                    | dynamodb:UpdateItem     | StockAdjustments        | role
Sweep                    | sqs:GetQueueAttributes sqs:SendMessage | ExpiryQueue  | role
# DynamoDB requires each action within a transaction.
# docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
PlaceOrders  | dynamodb:BatchGetItem dynamodb:ConditionCheckItem dynamodb:GetItem dynamodb:UpdateItem | Products | role
ChangeOrders | dynamodb:BatchGetItem dynamodb:UpdateItem | Products | role
PlaceOrders, ChangeOrders | dynamodb:BatchGetItem dynamodb:GetItem dynamodb:PutItem dynamodb:UpdateItem | Orders | role
AdjustStock, CountStock | dynamodb:BatchGetItem dynamodb:GetItem dynamodb:UpdateItem | Products | role
AdjustStock, CountStock | dynamodb:BatchGetItem dynamodb:GetItem dynamodb:PutItem               | StockAdjustments | role
PlaceOrders, AdjustStock, ChangeOrders, ManageProducts | USE_LANES | Allotments | role
Api            | dynamodb:BatchGetItem dynamodb:ConditionCheckItem dynamodb:GetItem dynamodb:Scan dynamodb:UpdateItem | Products | role
Api            | dynamodb:Query                                                                 | StockAdjustments | role
Api, CountStock | USE_LANES dynamodb:GetItem                                                    | Allotments       | role
Api            | dynamodb:BatchGetItem dynamodb:GetItem dynamodb:PutItem dynamodb:UpdateItem | Orders | role
ManageProducts | dynamodb:BatchGetItem CHANGE_ROWS                                              | Products         | role
ManageProducts | dynamodb:PutItem                                                               | StockAdjustments | role
ManageProducts | dynamodb:DeleteItem dynamodb:PutItem                                           | Words            | role
Api            | dynamodb:Query                                                                 | Words            | role
ManageProducts | dynamodb:DeleteItem dynamodb:PutItem                                           | Barcodes         | role
Api            | dynamodb:GetItem                                                               | Barcodes         | role
PlaceOrders, Api | dynamodb:BatchGetItem dynamodb:ConditionCheckItem dynamodb:GetItem dynamodb:UpdateItem | Purchases | role
ChangeOrders   | dynamodb:UpdateItem                                                            | Purchases        | role
# GetItem, Scan and PutEvents: with the setting stockEvents.
Sweep          | dynamodb:BatchGetItem dynamodb:DescribeTable dynamodb:GetItem dynamodb:Scan dynamodb:UpdateItem | Products | role
Sweep          | USE_LANES dynamodb:GetItem                                                     | Allotments       | role
Sweep          | events:PutEvents                                                               | EventBus         | role
# Whether the streams are read.
Sweep                    | dynamodb:DescribeTable dynamodb:BatchGetItem | Orders | role
Sweep | lambda:GetEventSourceMapping | mapping of Orders stream, mapping of Products stream | role
# Lambda writes the log with the role of the function. The group exists, so no function need create it.
every function           | WRITE_LOG               | its log                 | role
every function           | logs to                 | its log                 | logging configuration
# X-Ray has no resources to name. docs.aws.amazon.com/service-authorization/latest/reference/list_awsx-ray.html
every function           | TRACE                   | *                       | role
every function           | traces with             | X-Ray                   | tracing configuration
# The path of an alarm to a person. docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html
every alarm              | tells Alarm OK          | Alarms                  | alarm actions
cloudwatch.amazonaws.com | sns:Publish             | Alarms                  | topic policy, for alarms of this account
Alarms                   | mails to                | ops@example.com         | subscription
# Requests without TLS are denied.
everybody                | NOT sqs:*               | every queue             | queue policy, without TLS
everybody                | NOT sns:Publish         | Alarms                  | topic policy, without TLS
# Data at rest.
SQS                      | encrypts                | every queue             | SSE-SQS, keys of SQS
DynamoDB                 | encrypts                | every table             | the key that it owns
DynamoDB                 | maintains byUser        | Orders                  | global secondary index
DynamoDB                 | maintains byExpiry      | Orders                  | global secondary index
DynamoDB                 | maintains byStatus      | Orders                  | global secondary index
DynamoDB                 | maintains byLatePayment | Orders                  | global secondary index
DynamoDB                 | maintains byTime        | StockAdjustments        | global secondary index
DynamoDB                 | maintains byStocktake   | StockAdjustments        | global secondary index
DynamoDB                 | maintains byTransfer    | StockAdjustments        | global secondary index
DynamoDB                 | maintains byReference   | Movements               | global secondary index
DynamoDB                 | maintains byCount       | Products                | global secondary index
DynamoDB                 | maintains byLevel       | Products                | global secondary index
DynamoDB                 | maintains a stream      | Orders, Products        | stream specification
"""

SHORT = {
    "CONSUME": "sqs:ReceiveMessage sqs:DeleteMessage sqs:GetQueueAttributes sqs:ChangeMessageVisibility",
    "READ_STREAM": "dynamodb:DescribeStream dynamodb:GetRecords dynamodb:GetShardIterator dynamodb:ListStreams",
    "USE_LANES": "dynamodb:BatchGetItem dynamodb:UpdateItem dynamodb:ConditionCheckItem",
    "CHANGE_ROWS": "dynamodb:GetItem dynamodb:PutItem dynamodb:UpdateItem dynamodb:DeleteItem",
    "WRITE_LOG": "logs:CreateLogStream logs:PutLogEvents",
    "TRACE": "xray:PutTraceSegments xray:PutTelemetryRecords",
}

ACCOUNT = {"Ref": "AWS::AccountId"}
ALARM = ["arn:", {"Ref": "AWS::Partition"}, ":cloudwatch:", {"Ref": "AWS::Region"}, ":", ACCOUNT]
CONDITIONS = [
    ({"Bool": {"aws:SecureTransport": "false"}}, ", without TLS"),
    (
        {
            "StringEquals": {"aws:SourceAccount": ACCOUNT},
            "ArnLike": {"aws:SourceArn": {"Fn::Join": ["", [*ALARM, ":alarm:*"]]}},
        },
        ", for alarms of this account",
    ),
    ({"StringEquals": {"aws:SourceAccount": ACCOUNT}}, ", for this account"),
]

# The "every ..." entries of the table.
EVERY = {
    "AWS::CloudWatch::Alarm": "every alarm",
    "AWS::DynamoDB::GlobalTable": "every table",
    "AWS::IAM::Role": "every role",
    "the roles of functions": "the role of every function",
    "AWS::Lambda::Function": "every function",
    "AWS::SQS::Queue": "every queue",
}


def expected(access=ACCESS):
    lines = [line for line in access.strip().splitlines() if not line.startswith("#")]
    for line in lines:
        who, what, target, why = (" ".join(cell.split()) for cell in line.split("|"))
        actions = " ".join(SHORT.get(word, word) for word in what.split())
        for one, other in itertools.product(who.split(", "), target.split(", ")):
            yield one, " ".join(sorted(actions.split())), other, why


def a_list(value):
    return value if isinstance(value, list) else [value]


class Access:
    """Reads the accesses from a template."""

    def __init__(self, template):
        self.resources = template["Resources"]
        self.found = set()
        for id_, resource in self.resources.items():
            name, properties = self.name(id_), resource.get("Properties", {})
            if READERS[resource["Type"]]:
                READERS[resource["Type"]](self, name, properties)
            for way in sorted(UNUSED & {*names_in(properties)}):
                self.add(name, way, name, "a kind of access that the table does not have")

    def name(self, value):
        """Return the name that infra/ uses for a referenced resource."""
        match value:
            case {"Fn::GetAtt": [id_, "StreamArn"]}:
                return f"{self.name(id_)} stream"
            case {"Fn::GetAtt": [id_, "EventSourceMappingArn"]}:
                source = self.resources[id_]["Properties"]["EventSourceArn"]
                return f"mapping of {self.name(source)}"
            case {"Ref": id_} | {"Fn::GetAtt": [id_, _]}:
                return self.name(id_)
            case {"Fn::Join": ["", [{"Fn::Select": [6, {"Fn::Split": [":", alias]}]}, ":live"]]}:
                return self.name(alias)
            case {"Fn::Join": ["", [{"Fn::GetAtt": _}, str(path)]]} if path.startswith("/index/"):
                return path.removeprefix("/index/")
            case str() if self.resources.get(value, {}).get("Type") == "AWS::Lambda::Alias":
                alias = self.resources[value]["Properties"]
                return f"{self.name(alias['FunctionName'])} {alias['Name']}"
            case str() if value in self.resources:
                short = value[:-8]
                for part in ("Functions", "Tables", "Queues", "Monitoring", "Events"):
                    short = short.removeprefix(part)
                return short
        return value if isinstance(value, str) else json.dumps(value)

    def add(self, who, what, target, why):
        target = "its log" if target == f"{who}Logs" else target
        self.found.add((who, " ".join(sorted(what.split())), target, why))

    def statements(self, role, properties, why):
        """Add a line for each part of a policy. Unusual parts of a statement remain visible in its line."""
        for statement in properties["PolicyDocument"]["Statement"]:
            rest = {name: value for name, value in statement.items() if name != "Sid"}
            sign = {"Allow": "", "Deny": "NOT "}[rest.pop("Effect")]
            what = " ".join(sign + action for action in a_list(rest.pop("Action")))
            targets = a_list(rest.pop("Resource"))
            match rest.pop("Principal", None):
                case None:
                    who = role
                case "*" | {"AWS": "*"}:
                    who = "everybody"
                case {"Service": str(service)}:
                    who = service
                case other:
                    who = json.dumps(other)
            condition = rest.pop("Condition", None)
            note = next((note for known, note in CONDITIONS if known == condition), condition)
            for target in targets:
                self.add(who, what, self.name(target), f"{why}{note or ''}{rest or ''}")

    def role(self, name, properties):
        trust = properties["AssumeRolePolicyDocument"]["Statement"]
        document = {"Statement": [{**statement, "Resource": name} for statement in trust]}
        self.statements(name, {"PolicyDocument": document}, "trust policy")

    def policy(self, _, properties):
        for role in properties["Roles"]:
            self.statements(self.name(role).removesuffix("Role"), properties, "role")

    def queue_policy(self, _, properties):
        self.resource_policy(properties, properties["Queues"], "queue policy")

    def topic_policy(self, _, properties):
        self.resource_policy(properties, properties["Topics"], "topic policy")

    def resource_policy(self, properties, attached_to, why):
        """Add the lines of a resource policy, which applies only to resources that it both names and is attached to."""
        for statement in properties["PolicyDocument"]["Statement"]:
            assert a_list(statement["Resource"]) in (
                attached_to,
                [{"Fn::GetAtt": [target["Ref"], "Arn"]} for target in attached_to],
            )
        self.statements("", properties, why)

    def queue(self, name, properties):
        encrypted = properties.get("SqsManagedSseEnabled")
        self.add("SQS", "encrypts", name, "SSE-SQS, keys of SQS" if encrypted else "otherwise")
        if "RedrivePolicy" in properties:
            dead_letters = self.name(properties["RedrivePolicy"]["deadLetterTargetArn"])
            self.add(name, "moves dead letters", dead_letters, "redrive policy")

    def table(self, name, properties):
        owned = properties["SSESpecification"] == {"SSEEnabled": False}
        self.add("DynamoDB", "encrypts", name, "the key that it owns" if owned else "otherwise")
        for index in properties.get("GlobalSecondaryIndexes", []):
            self.add("DynamoDB", f"maintains {index['IndexName']}", name, "global secondary index")
        if "StreamSpecification" in properties:
            self.add("DynamoDB", "maintains a stream", name, "stream specification")
        assert not any("SSESpecification" in replica for replica in properties["Replicas"])

    def function(self, name, properties):
        assert self.name(properties["Role"]) == f"{name}Role"
        log = self.name(properties["LoggingConfig"]["LogGroup"])
        self.add(name, "logs to", log, "logging configuration")
        if properties.get("TracingConfig") == {"Mode": "Active"}:
            self.add(name, "traces with", "X-Ray", "tracing configuration")

    def mapping(self, _, properties):
        source = self.name(properties["EventSourceArn"])
        self.add(source, "feeds", self.name(properties["FunctionName"]), "event source mapping")
        for case, destination in properties.get("DestinationConfig", {}).items():
            assert case == "OnFailure"
            target = self.name(destination["Destination"])
            self.add(source, "gives up", target, "destination on failure")

    def schedule(self, name, properties):
        target = properties["Target"]
        role = self.name(target["RoleArn"])
        self.add(name, "invokes", self.name(target["Arn"]), f"schedule, as {role}")

    def repetition(self, _, properties):
        assert "DestinationConfig" not in properties

    def alarm(self, name, properties):
        topics = {
            state: {self.name(topic) for topic in properties.get(f"{state}Actions", [])}
            for state in ("Alarm", "OK", "InsufficientData")
        }
        for topic in set.union(*topics.values()):
            states = " ".join(state for state, told in topics.items() if topic in told)
            self.add(name, f"tells {states}", topic, "alarm actions")

    def subscription(self, _, properties):
        topic, kind = self.name(properties["TopicArn"]), properties["Protocol"]
        what = "mails to" if kind == "email" else kind
        self.add(topic, what, self.name(properties["Endpoint"]), "subscription")

    def route(self, _, properties):
        """Add a line for a route: who may call it, and the function behind it."""
        kind = properties.get("AuthorizationType")
        callers = {"AWS_IAM": "a signature", "JWT": "a token"}.get(kind, "nothing")
        _, [_, target] = properties["Target"]["Fn::Join"]
        integration = self.resources[target["Ref"]]["Properties"]
        why = f"route to {self.name(integration['IntegrationUri'])}"
        who = f"everybody with {callers}"
        self.add(who, "execute-api:Invoke", properties["RouteKey"], why)

    def permission(self, _, properties):
        """Add a line about who may invoke a function, other than the account's roles."""
        source = properties["SourceArn"]["Fn::Join"][1]
        texts = [part for part in source if isinstance(part, str)]
        for_routes = texts[1:] == [":execute-api:", ":", ":", "/*"]
        who = f"routes of {self.name(source[7])}" if for_routes else json.dumps(source)
        target, why = self.name(properties["FunctionName"]), f"permission, for {who}"
        self.add(properties["Principal"], properties["Action"], target, why)

    def stage(self, _, properties):
        log = self.name(properties["AccessLogSettings"]["DestinationArn"])
        stage = f"stage {properties['StageName']}"
        self.add(self.name(properties["ApiId"]), "logs to", log, stage)

    def lines(self):
        """Return the accesses. If all resources of a kind have the same access, one line names them as "every ..."."""
        found = set(self.found)
        names = defaultdict(set)
        for id_, resource in self.resources.items():
            names[resource["Type"]].add(self.name(id_))
            if resource["Type"] == "AWS::Lambda::Function":
                names["the roles of functions"].add(f"{self.name(id_)}Role")
        for kind, every in EVERY.items():
            for column in (0, 2):
                groups = defaultdict(set)
                for line in found:
                    if line[column] in names[kind]:
                        groups[(*line[:column], every, *line[column + 1 :])].add(line)
                for together, lines in groups.items():
                    if len(lines) == len(names[kind]) > 1:
                        found = found - lines | {together}
        return found


READERS = {
    "AWS::ApiGatewayV2::Route": Access.route,
    "AWS::ApiGatewayV2::Stage": Access.stage,
    "AWS::CloudWatch::Alarm": Access.alarm,
    "AWS::DynamoDB::GlobalTable": Access.table,
    "AWS::IAM::Policy": Access.policy,
    "AWS::IAM::Role": Access.role,
    "AWS::Lambda::EventInvokeConfig": Access.repetition,
    "AWS::Lambda::EventSourceMapping": Access.mapping,
    "AWS::Lambda::Function": Access.function,
    "AWS::Lambda::Permission": Access.permission,
    "AWS::Scheduler::Schedule": Access.schedule,
    "AWS::SNS::Subscription": Access.subscription,
    "AWS::SNS::TopicPolicy": Access.topic_policy,
    "AWS::SQS::Queue": Access.queue,
    "AWS::SQS::QueuePolicy": Access.queue_policy,
    # Without a policy of its own, only this account may send events to a bus.
    "AWS::Events::EventBus": None,
    **dict.fromkeys(["AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Integration"]),
    **dict.fromkeys(["AWS::Lambda::Alias", "AWS::Lambda::LayerVersion", "AWS::Lambda::Version"]),
    **dict.fromkeys(["AWS::CloudWatch::Dashboard", "AWS::Logs::LogGroup", "AWS::SNS::Topic"]),
}
UNUSED = {
    *("ManagedPolicyArns", "Policies", "Policy", "ResourcePolicy", "ResourcePolicyDocument"),
    *("RuntimePolicy", "RedriveAllowPolicy", "KmsKeyArn", "KmsKeyId", "KmsKeyIdentifier"),
    *("KmsMasterKeyId", "DeadLetterConfig", "OnSuccess", "EventSourceName", "LogConfig"),
    *("KinesisStreamSpecification", "ReplicaStreamSpecification", "VpcConfig", "RoutingConfig"),
    *("FileSystemConfigs", "ProvisionedConcurrencyConfig", "ApiKeyRequired", "AuthorizationScopes"),
}
"""Properties that would give access to a resource in another way."""


def names_in(value):
    """Yield the names of all properties at any depth."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from names_in(inner)


@pytest.fixture(scope="module")
def template():
    return synthesise("dev", alarmEmail="ops@example.com", tracing=True, stockEvents=True).to_json()


def test_every_access_between_services_is_granted_and_in_the_table(template):
    found, listed = Access(template).lines(), list(expected())
    assert sorted(found - set(listed)) == [], "this access is missing from the table"
    assert sorted(set(listed) - found) == [], "the stack does not grant this access"
    assert len(listed) == len(set(listed))


def test_the_sweep_may_list_products_and_publish_only_with_stock_events(template):
    new = rights_of_the_sweep(template) - rights_of_the_sweep(synthesise("dev").to_json())
    assert {action for action, target in new if target != "*"} == {
        *("dynamodb:GetItem", "dynamodb:Scan", "events:PutEvents")
    }


def rights_of_the_sweep(template):
    """Return the actions and resources that the sweep may use."""
    lines = [line for line in Access(template).found if line[0] == "Sweep"]
    return {(action, line[2]) for line in lines for action in line[1].split()} - {
        ("traces", "X-Ray"),
        ("with", "X-Ray"),
    }


FOR_DESK = """
Orders stream, Products stream | feeds | RecordMovements live | event source mapping
RecordMovements | dynamodb:BatchGetItem dynamodb:UpdateItem | Allotments | role
RecordMovements | READ_STREAM   | Orders stream, Products stream | role
"""


@pytest.mark.parametrize("movements", [True, False])
def test_to_note_changes_for_the_desk_one_function_reads_both_streams(movements):
    desk = {name: EVERYTHING[name] for name in ("jwt", "holdSeconds", "desk")}
    resources = synthesise("dev", movements=movements, **desk).to_json()["Resources"]
    others = {name: r for name, r in resources.items() if "ApiGateway" not in r["Type"]}
    found = Access({"Resources": others}).lines()
    assert set(expected(FOR_DESK)) <= found
    reached = {target for who, _, target, _ in found if who == "RecordMovements"}
    of_movements = {"Movements", "UnrecordedMovementsQueue"}
    assert reached & of_movements == (of_movements if movements else set())


def test_an_unused_way_to_reach_a_resource_is_found(template):
    changed = copy.deepcopy(template)
    role = next(r for r in changed["Resources"].values() if r["Type"] == "AWS::IAM::Role")
    role["Properties"]["ManagedPolicyArns"] = ["x"]
    assert Access(changed).lines() != set(expected())


def test_a_resource_of_another_kind_is_found(template):
    broken = copy.deepcopy(template)
    broken["Resources"]["Other01234567"] = {"Type": "AWS::Lambda::Url"}
    with pytest.raises(KeyError, match="AWS::Lambda::Url"):
        Access(broken)
