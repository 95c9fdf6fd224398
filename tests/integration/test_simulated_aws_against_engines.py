"""The simulated AWS gives the same answers and errors to random calls as the embedded AWS and Dynoxide.

The calls avoid cases in which these engines are known to differ from AWS (docs/contributing.md); unit tests cover
those.
"""

import random
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from inventory_orders.store.tables import Index
from testing.aws import SimulatedAws, answered_by
from testing.world.clock import ManualClock
from testing.world.tables import creation

CALLS = 400
CLIENT = Config(retries={"total_max_attempts": 1}, parameter_validation=False)

TABLES = {
    "SimulatedPlain": (["p"], [Index("byS", ("s", "r"), ["n"])]),
    "SimulatedSorted": (["p", "r"], []),
}
NAMES = {f"#{name}": name for name in "nsxtb"}
VALUES = {
    ":1": {"N": "1"},
    ":2": {"N": "2.5"},
    ":s": {"S": "a"},
    ":bytes": {"B": b"\xff\xfe"},
}


def create_tables(client: Any) -> None:
    for name, (keys, indexes) in TABLES.items():
        client.create_table(**creation(name, keys, indexes))


class Calls:
    """Random requests, most of them valid, for a few items.

    Args:
        seed: Seed of the random numbers.
        engine: Name of the engine that gets the requests.
    """

    def __init__(self, seed: int, engine: str) -> None:
        self.random = random.Random(seed)
        self.on_dynoxide = engine == "Dynoxide"
        self.tokens = 0

    def table(self) -> str:
        return self.random.choice(list(TABLES))

    def key(self, table: str) -> dict[str, Any]:
        key: dict[str, Any] = {"p": {"S": self.random.choice("abc")}}
        if table == "SimulatedSorted":
            key["r"] = {"S": self.random.choice(["1", "2", "10", "ü"])}
        return key

    def number(self) -> dict[str, Any]:
        return {"N": self.random.choice(["0", "1", "2", "-3", "1.5", "10", "0.1", "12345678901"])}

    def value(self) -> dict[str, Any]:
        choices: list[dict[str, Any]] = [
            self.number(),
            {"S": self.random.choice(["", "a", "ab", "b", "ü"])},
            {"BOOL": True},
            {"NULL": True},
            {"L": [self.number(), {"S": "a"}]},
            {"M": {"n": self.number(), "s": {"S": "ab"}}},
            {"SS": ["a", "b"]},
            {"NS": ["1", "2"]},
            self.binary(),
        ]
        return self.random.choice(choices)

    def binary(self) -> dict[str, Any]:
        return {"B": self.random.choice([b"\x00", b"\xff\xfe", b"\xff\xfe\xfd", b"~~~", b"a"])}

    def item(self, table: str) -> dict[str, Any]:
        item = {"r": {"S": "1"}} | self.key(table)
        if self.random.random() < 0.8:
            item["n"] = self.number()
        if self.random.random() < 0.6:
            item["s"] = {"S": self.random.choice(["a", "ab", "b"])}
        if self.random.random() < 0.6:
            item["t"] = {"SS": self.random.choice([["a"], ["a", "b"], ["b", "c"]])}
        if self.random.random() < 0.6:
            item["b"] = self.binary()
        if self.random.random() < 0.6:
            item["x"] = self.value()
        return item

    def condition(self, depth: int = 0) -> str:
        draw = self.random.random()
        if depth < 2 and draw < 0.3:
            word = self.random.choice(["AND", "OR"])
            return f"{self.condition(depth + 1)} {word} {self.condition(depth + 1)}"
        if depth < 2 and draw < 0.4:
            return f"NOT {self.condition(depth + 1)}"
        if depth < 2 and draw < 0.5:
            return f"({self.condition(2)} OR {self.condition(2)})"
        name = self.random.choice(list(NAMES))
        number = self.random.choice([":1", ":2"])
        sign = self.random.choice(["<", "<=", ">", ">=", "="])
        return self.random.choice(
            [
                f"attribute_exists({name})",
                f"attribute_not_exists({name})",
                f"attribute_type({name}, :type)",
                f"{name} = {number}",
                f"{name} <> {number}",
                f"#n {sign} {number}",
                f"#s {sign} :s",
                f"#b {sign} :bytes",
                f"#n < {number} AND #x {sign} #n",
            ]
        )

    def update(self) -> str:
        """Change each attribute at most once: unlike AWS, the embedded AWS accepts two changes to one attribute."""
        actions = {
            "n": [
                ("SET", "#n = :1"),
                ("SET", "#n = #n + :1"),
                ("SET", "#n = #n - :2"),
                ("ADD", "#n :1"),
            ],
            "s": [("SET", "#s = :s"), ("REMOVE", "#s")],
            "t": [("REMOVE", "#t")],
            "b": [("SET", "#b = :bytes"), ("REMOVE", "#b")],
            "x": [("SET", "#x = #n"), ("SET", "#x = #s"), ("REMOVE", "#x")],
        }
        clauses: dict[str, list[str]] = {}
        for name in self.random.sample(list(actions), self.random.choice([1, 1, 2, 3])):
            clause, action = self.random.choice(actions[name])
            clauses.setdefault(clause, []).append(action)
        return " ".join(f"{clause} {', '.join(actions)}" for clause, actions in clauses.items())

    def placeholders(self, request: dict[str, Any], *texts: str) -> None:
        """Define the placeholders of expressions, and sometimes add unused ones."""
        text = " ".join(texts)
        values = VALUES | {":type": {"S": self.random.choice(["S", "N", "L", "M", "SS", "B"])}}
        names = {name: content for name, content in NAMES.items() if name in text}
        used = {name: content for name, content in values.items() if name in text}
        if self.random.random() < 0.02 and not self.on_dynoxide:
            used[":unused"] = {"N": "1"}
        if names:
            request["ExpressionAttributeNames"] = names
        if used:
            request["ExpressionAttributeValues"] = used

    def put(self) -> dict[str, Any]:
        table = self.table()
        return self.conditional({"TableName": table, "Item": self.item(table)})

    def delete(self) -> dict[str, Any]:
        table = self.table()
        return self.conditional({"TableName": table, "Key": self.key(table)})

    def change(self) -> dict[str, Any]:
        table = self.table()
        request = {
            "TableName": table,
            "Key": self.key(table),
            "UpdateExpression": self.update(),
        }
        return self.conditional(request)

    def conditional(self, request: dict[str, Any], *, always: bool = False) -> dict[str, Any]:
        texts = [request.get("UpdateExpression", "")]
        if always or self.random.random() < 0.5:
            request["ConditionExpression"] = self.condition()
            texts.append(request["ConditionExpression"])
            if self.random.random() < 0.7:
                request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        self.placeholders(request, *texts)
        return request

    def single(self) -> tuple[str, dict[str, Any]]:
        draw = self.random.random()
        if draw < 0.4:
            return "PutItem", self.put()
        if draw < 0.85:
            returned = self.random.choice(["NONE", "ALL_NEW"])
            return "UpdateItem", self.change() | {"ReturnValues": returned}
        return "DeleteItem", self.delete()

    def transaction(self) -> tuple[str, dict[str, Any]]:
        actions: list[dict[str, Any]] = []
        for _ in range(self.random.randrange(1, 4)):
            draw = self.random.random()
            if draw < 0.4:
                actions.append({"Put": self.put()})
            elif draw < 0.75:
                actions.append({"Update": self.change()})
            elif draw < 0.9:
                actions.append({"Delete": self.delete()})
            else:
                table = self.table()
                check = {"TableName": table, "Key": self.key(table)}
                actions.append({"ConditionCheck": self.conditional(check, always=True)})
        request: dict[str, Any] = {"TransactItems": actions}
        # AWS does not document which error comes first: a repeated item, or a reused token.
        places = {_place(action) for action in actions}
        if len(places) == len(actions) and self.random.random() < 0.5:
            # Some tokens are reused with other parameters.
            self.tokens += self.random.random() < 0.9
            request["ClientRequestToken"] = f"token-{self.tokens}"
        return "TransactWriteItems", request

    def read(self) -> tuple[str, dict[str, Any]]:
        draw, table = self.random.random(), self.table()
        if draw < 0.4:
            request: dict[str, Any] = {"TableName": table, "Key": self.key(table)}
            return "GetItem", request
        if draw < 0.6:
            keys = [self.key(table) for _ in range(self.random.randrange(1, 4))]
            return "BatchGetItem", {"RequestItems": {table: {"Keys": keys}}}
        if draw < 0.7:
            gets = [{"Get": {"TableName": table, "Key": self.key(table)}} for _ in range(2)]
            return "TransactGetItems", {"TransactItems": gets}
        if draw < 0.9:
            return "Query", self.query()
        request = {"TableName": table}
        if self.random.random() < 0.5:
            request["FilterExpression"] = self.condition()
            request["ProjectionExpression"] = ", ".join(self.random.sample(list(NAMES), 2))
            self.placeholders(request, request["FilterExpression"], request["ProjectionExpression"])
        return "Scan", request

    def query(self) -> dict[str, Any]:
        if self.random.random() < 0.3:
            return {
                "TableName": "SimulatedPlain",
                "IndexName": "byS",
                "KeyConditionExpression": "#s = :s",
                "ExpressionAttributeNames": {"#s": "s"},
                "ExpressionAttributeValues": {":s": {"S": self.random.choice(["a", "ab"])}},
            }
        request = {
            "TableName": "SimulatedSorted",
            "KeyConditionExpression": "#p = :p",
            "ExpressionAttributeNames": {"#p": "p"},
            "ExpressionAttributeValues": {":p": {"S": self.random.choice("abc")}},
            "ScanIndexForward": self.random.random() < 0.5,
        }
        if self.random.random() < 0.5:
            is_range = self.random.random() < 0.5
            limits = "BETWEEN :r AND :most" if is_range else ">= :r"
            request["KeyConditionExpression"] += f" AND #r {limits}"
            request["ExpressionAttributeNames"]["#r"] = "r"
            request["ExpressionAttributeValues"][":r"] = {"S": "10"}
            if is_range:
                request["ExpressionAttributeValues"][":most"] = {"S": "2"}
        if self.random.random() < 0.3:
            request["Limit"] = 2
        return request

    def next(self) -> tuple[str, dict[str, Any]]:
        draw = self.random.random()
        if draw < 0.4:
            return self.single()
        return self.transaction() if draw < 0.65 else self.read()


def _place(action: dict[str, Any]) -> str:
    (content,) = action.values()
    key = content.get("Key", content.get("Item", {}))
    return f"{content['TableName']} {key['p']} {key.get('r')}"


def call(client: Any, operation: str, request: dict[str, Any]) -> Any:
    """Call an operation, and return its answer or error without parts that may differ between implementations."""
    method = getattr(client, "".join(f"_{c.lower()}" if c.isupper() else c for c in operation)[1:])
    try:
        answer = method(**request)
    except ClientError as error:
        reasons = [
            (reason.get("Code"), comparable(reason.get("Item")))
            for reason in error.response.get("CancellationReasons", ())
        ]
        item = comparable(error.response.get("Item"))
        return error.response["Error"]["Code"], reasons, item
    del answer["ResponseMetadata"]
    answer = {name: value for name, value in answer.items() if value not in ({}, [])}
    if operation == "Scan":
        answer["Items"] = sorted(map(repr, map(comparable, answer.get("Items", ()))))
    for name, items in answer.get("Responses", {}).items() if operation == "BatchGetItem" else ():
        answer["Responses"][name] = sorted(map(repr, map(comparable, items)))
    return comparable(answer)


def comparable(value: Any) -> Any:
    """Sort sets, which have no order."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in {"SS", "NS"}:
            return {kind: sorted(content) for kind, content in value.items()}
        return {name: comparable(content) for name, content in sorted(value.items())}
    if isinstance(value, list):
        return [comparable(element) for element in value]
    return value


@pytest.fixture(params=["embedded AWS", "Dynoxide"])
def engine(request: Any) -> tuple[str, Any]:
    """Return each implementation of DynamoDB in turn: its name, and a client."""
    if request.param == "Dynoxide":
        server = request.getfixturevalue("dynoxide")
    else:
        _, server = request.getfixturevalue("embedded_aws")
    return request.param, boto3.client("dynamodb", config=CLIENT, endpoint_url=server.endpoint)


@pytest.fixture
def both(engine: tuple[str, Any]) -> Any:
    """Return a function that calls an operation on an engine and on the simulated AWS."""
    _, real = engine
    aws_in_memory = SimulatedAws(ManualClock().now)
    create_tables(real)
    with answered_by(aws_in_memory.answer):
        simulated = boto3.client("dynamodb", config=CLIENT)
        create_tables(simulated)

    def compare(operation: str, request: dict[str, Any]) -> tuple[Any, Any]:
        found = call(real, operation, request)
        with answered_by(aws_in_memory.answer):
            return found, call(simulated, operation, request)

    yield compare
    for table in TABLES:
        real.delete_table(TableName=table)


def test_random_calls_get_the_same_answers_from_each_engine(engine, both):
    name, _ = engine
    calls = Calls(2026, name)
    seen: dict[str, int] = {}
    for number in range(CALLS):
        operation, request = calls.next()
        real, simulated = both(operation, request)
        assert simulated == real, f"call {number}: {operation} {request}"
        code = simulated[0] if isinstance(simulated, tuple) else "OK"
        seen[f"{operation} {code}"] = seen.get(f"{operation} {code}", 0) + 1
    assert seen["TransactWriteItems OK"] > 20
    assert seen["TransactWriteItems TransactionCanceledException"] > 20
    assert seen["UpdateItem ConditionalCheckFailedException"] > 8
    assert seen["UpdateItem ValidationException"] > 8


# ---------------------------------------------------------------------------------------------- SQS


class Messages:
    """Sends the same random calls to queues of the embedded and the simulated AWS, and matches message ids by body."""

    def __init__(self, real: Any, fifo: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.clients = (real, boto3.client("sqs", config=CLIENT))
        self.aws_in_memory = SimulatedAws(ManualClock().now)
        self.fifo = fifo
        name, attributes = "simulated", {"VisibilityTimeout": "900"}
        if fifo:
            name = "simulated.fifo"
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
            attributes |= {"DeduplicationScope": "messageGroup"}
            attributes |= {"FifoThroughputLimit": "perMessageGroupId"}
        url = real.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.urls = (url, self.aws_in_memory.sqs.create(name, 900, content_based=fifo).url)
        # The receipt handles of both sides, oldest first, including those of deleted messages.
        self.handles: list[tuple[str, str]] = []
        self.sent = 0

    def on(self, side: int, method: str, **request: Any) -> Any:
        if side == 0:
            return getattr(self.clients[0], method)(**request)
        with answered_by(self.aws_in_memory.answer):
            return getattr(self.clients[1], method)(**request)

    def both(self, method: str, **request: Any) -> list[Any]:
        found = []
        for side in (0, 1):
            parameters = {
                name: value[side] if isinstance(value, tuple) else value
                for name, value in request.items()
            }
            try:
                found.append(self.on(side, method, QueueUrl=self.urls[side], **parameters))
            except ClientError as error:
                found.append(error.response["Error"]["Code"])
        return found

    def send(self) -> None:
        # Bodies repeat, so that FIFO queues have something to deduplicate.
        entries = []
        for number in range(self.random.randrange(1, 4)):
            self.sent += self.random.random() < 0.8
            body = f"message {self.sent}"
            entry: dict[str, Any] = {"Id": str(number), "MessageBody": body}
            if self.sent % 2:
                entry["MessageAttributes"] = {"a": {"DataType": "String", "StringValue": "ü"}}
            if self.fifo or self.sent % 5:
                # A duplicate has the same values in all parameters; AWS does not document what happens otherwise.
                entry["MessageGroupId"] = str(self.sent % 3)
            if self.fifo and self.sent % 4:
                entry["MessageDeduplicationId"] = body.replace(" ", "-")
            entries.append(entry)
        real, simulated = self.both("send_message_batch", Entries=entries)
        for name in ("Successful", "Failed"):
            assert self.digests(simulated, name) == self.digests(real, name)

    def digests(self, answer: Any, name: str) -> Any:
        return [
            (entry["Id"], entry.get("MD5OfMessageBody"), entry.get("MD5OfMessageAttributes"))
            for entry in answer.get(name, ())
        ]

    def receive(self) -> None:
        real, simulated = self.both(
            "receive_message",
            MaxNumberOfMessages=self.random.choice([1, 2, 10]),
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        assert self.comparable_answer(simulated) == self.comparable_answer(real)
        for one, other in zip(real.get("Messages", ()), simulated.get("Messages", ()), strict=True):
            self.handles.append((one["ReceiptHandle"], other["ReceiptHandle"]))

    def comparable_answer(self, answer: Any) -> Any:
        return [
            (
                *(message["Body"], message["MD5OfBody"], message.get("MessageAttributes")),
                *(
                    message["Attributes"].get(name)
                    for name in ("ApproximateReceiveCount", "MessageGroupId")
                ),
            )
            for message in answer.get("Messages", ())
        ]

    def delete(self) -> None:
        if self.handles:
            handle = self.handles.pop(self.random.randrange(len(self.handles)))
            real, simulated = self.both("delete_message", ReceiptHandle=handle)
            assert isinstance(real, str) == isinstance(simulated, str)

    def release(self) -> None:
        if self.handles:
            handle = self.handles.pop(self.random.randrange(len(self.handles)))
            entries = tuple(
                [{"Id": "0", "ReceiptHandle": one, "VisibilityTimeout": 0}] for one in handle
            )
            real, simulated = self.both("change_message_visibility_batch", Entries=entries)
            assert len(simulated.get("Failed", ())) == len(real.get("Failed", ()))

    def count(self) -> None:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        real, simulated = self.both("get_queue_attributes", AttributeNames=names)
        assert simulated["Attributes"] == real["Attributes"]


@pytest.mark.parametrize("fifo", [False, True])
def test_random_queue_calls_get_the_same_answers_from_the_embedded_aws(embedded_aws, fifo):
    real = boto3.client("sqs", config=CLIENT)
    messages = Messages(real, fifo, seed=7)
    for _ in range(250):
        messages.random.choice(
            [
                *(messages.send, messages.receive, messages.receive),
                *(messages.delete, messages.release, messages.count),
            ]
        )()
    assert messages.sent > 25
    real.delete_queue(QueueUrl=messages.urls[0])
