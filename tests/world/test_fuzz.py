"""Fuzzing: whatever the input, a handler raises no exception and loses nothing, and every error names a field.

Inputs are generated from the handlers' JSON Schemas and broken in many ways. So are changes to rows. An independent
validator (jsonschema) decides which inputs are valid. DynamoDB and SQS are simulated. Time passes only in waits.
Nothing is random: Hypothesis derives its choices from the tests.
"""

import contextlib
import copy
import functools
import io
import itertools
import json
import re
from collections import Counter
from datetime import datetime

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.loop import Engine
from inventory_orders.errors import Outcome
from inventory_orders.invocation.telemetry import logger
from inventory_orders.messages.documents import json_schema
from inventory_orders.products.lease import Lease
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from operations.redrive import CAUSES
from testing.aws import ServiceError
from testing.aws.sqs import is_sendable
from testing.schedules.in_turn.shop import Shop
from testing.world.ends import is_answered_with_no, is_done, units_of
from testing.world.events import sqs_event
from testing.world.handlers import function_names
from testing.world.streams import change, order_row, product_row
from testing.world.tables import FEEDS, UNDELIVERABLE

fuzz = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=list(HealthCheck),
)

NOW = 1_795_000_000.0
BEGAN = "2026-11-18T10:06:40.000000+00:00"  # an hour before
GRACE_BEGAN = "2026-11-18T11:05:40.000000+00:00"  # a minute before
SOON = "2026-11-18T11:21:40.000000+00:00"  # 15 minutes later
STOCK = {"tea": 60, "mug": 3, "none-left": 0, "counted": 5, "counted-before": 5, "ended": 5}
ONE_TEA = {"tea": 1}
ORDERS = {
    "o-held": [],
    "o-later": [],
    "o-paid": [OrderCommand("o-paid", OrderAction.CONFIRM)],
    "o-part": [
        OrderCommand("o-part", OrderAction.CONFIRM),
        OrderCommand("o-part", OrderAction.FULFIL, step_id="s-1", quantities=ONE_TEA),
        OrderCommand("o-part", OrderAction.CANCEL, step_id="s-2", quantities=ONE_TEA),
    ],
    "o-done": [
        OrderCommand("o-done", OrderAction.CONFIRM),
        OrderCommand("o-done", OrderAction.FULFIL),
    ],
    "o-over": [OrderCommand("o-over", OrderAction.CANCEL)],
    "o-ended": [OrderCommand("o-ended", OrderAction.EXPIRE, ended_by=SOON)],
    "o-refused": [],
}
"""The existing orders, one in each status, with the steps that led to this status."""

LEASES: list[dict] = []
"""Two leases as returned by `acquire`: one is live, the other has expired."""

SCHEMA_OF = {
    "place_orders": "order",
    "adjust_stock": "adjustment",
    "manage_products": "catalogue_event",
    "change_orders": None,
    "expire_orders": "expiry",
}
"""Schemas by the function that a queue feeds. The second queue of `change_orders` is the queue of expiries. A command
has the schema of its action."""


# ------------------------------------------------------------------ the world of a handler


class World:
    """Invokes handlers of one shop, which is reset before each invocation."""

    def __init__(self, shop):
        self.shop, self.bus = shop, shop.bus
        for product_id, stock in STOCK.items():
            shop.list(product_id, stock)
        shop.products.discontinue("ended", shop.soon())
        self._place_orders()
        shop.clock.seconds = NOW - 60
        LEASES[:] = [self._acquire("counted", 900), self._acquire("counted-before", 30)]
        # The number of changes that the engine processed, by kind and outcome.
        self.met = Counter()
        self._start = self._rows()

    def _place_orders(self):
        """Create an order in each status. The hold of `o-held` has ended by now, but the hold of `o-later` has not."""
        lasts = {"o-held": 60, "o-ended": 60, "o-later": 3_700}
        quantities = {"o-refused": 1_000}
        for order_id in ORDERS:
            outcome = self.shop.order(
                order_id, lasts.get(order_id), tea=quantities.get(order_id, 4)
            )
            assert (outcome is Outcome.REJECTED) is (order_id == "o-refused")
        for command in itertools.chain(*ORDERS.values()):
            assert self.shop.do(command) == [Outcome.APPLIED]

    def _acquire(self, product_id, seconds):
        client, soon = self.shop.products.client, self.shop.soon()
        return Lease.acquire(client, product_id, seconds, soon, outlive_deadline=True).token

    def _rows(self):
        return {table: dict(self.shop.items(table)) for table in Table}

    def note(self, changes, outcomes):
        """Record the outcomes of the changes that the engine processed."""
        for change_, outcome in zip(changes, outcomes, strict=True):
            kind = type(change_).__name__
            if isinstance(change_, OrderCommand):
                kind = str(change_.action)
                if change_.quantities and change_.action is not OrderAction.RETURN:
                    kind += " what is lost" if change_.restock is False else " a part"
            self.met[kind, outcome.kind] += 1

    def invoke(self, name, event, *, sqs_fails=False):
        """Invoke a handler, and return its answer. Checks that Lambda accepts the answer and CloudWatch Logs the
        output."""
        for table, items in self._start.items():
            self.shop.aws.dynamodb.tables[table.value].items = dict(items)
        for queue in self.shop.aws.sqs.queues.values():
            queue.messages.clear()
            queue.remembered.clear()
        self.shop.clock.seconds = NOW
        self.shop.calm()
        if sqs_fails:
            self.shop.refuse("SendMessageBatch", ServiceError("InternalFailure", status=500))
        self.bus.taken = []
        logs = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with contextlib.redirect_stdout(logs):
            function = "change_orders" if name == "expire_orders" else name
            answer = self.shop.invoke(function, event)
        logs.flush()
        for line in logs.buffer.getvalue().splitlines():
            assert isinstance(json.loads(line), dict)
        # Some Lambda runtimes, such as Python 3.12's, do not escape the answer.
        json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8")
        return answer

    def rows(self, table):
        return list(self.shop.items(Table(table)).values())

    def row(self, table, *key):
        item = self.shop.item(table, *key)
        return None if item is None else decode(item)

    def start(self, table, **key):
        """A row as it was before the invocation, or None."""
        rows = (decode(row) for row in self._start[Table(table)].values())
        return next((row for row in rows if key.items() <= row.items()), None)

    def messages(self, *queues):
        """List the messages in these queues, each with the name of its queue."""
        return [(name, each) for name in queues for each in self.shop.queues[name].messages]

    @property
    def dead_letters(self):
        return self.messages(*(f"{name}DeadLetter" for name in FEEDS))

    @property
    def parked(self):
        return self.shop.aws.sqs.queues[UNDELIVERABLE].messages

    def nothing_was_done(self):
        return self._rows() == self._start and not self.dead_letters


def texts_of(message):
    return {name: value["StringValue"] for name, value in message.attributes.items()}


def raise_again(_record):
    """Raise the error of a failed log call. Otherwise, logging would silently drop the line."""
    raise  # noqa: PLE0704 - called by logging while it handles the error


@pytest.fixture(scope="module")
def world():
    shop = Shop()
    shop.clock.seconds = NOW - 3600
    with pytest.MonkeyPatch.context() as patch, shop.open():
        patch.setattr(logger.registered_handler, "handleError", raise_again)
        world = World(shop)
        apply = Engine.apply

        def noted(engine, changes, *more):
            changes = list(changes)
            report = apply(engine, changes, *more)
            world.note(changes, report.outcomes)
            return report

        patch.setattr(Engine, "apply", noted)
        yield world


# ------------------------------------------------------------------ inputs


LIKELY = {
    "productId": st.sampled_from(["tea", "tea", "tea", *STOCK, "no-such"]),
    "orderId": st.sampled_from(
        ["o-1", "o-2", *ORDERS, *["o-later", "o-paid", "o-part", "o-done"] * 3]
    ),
    "stepId": st.sampled_from(["rt-1", "rt-2", "s-1"]),
    "userId": st.just("u-1"),
    "adjustmentId": st.sampled_from(["a-1", "a-2"]),
    "quantity": st.sampled_from([1, 1, 1, 1, 2, 3, 50]),
    "until": st.sampled_from(
        [
            "2026-11-18T11:00:00Z",
            "2026-11-18T15:30:00+01:00",
            "2026-11-20T12:00:00Z",
            "2027-01-01T00:00:00Z",
        ]
    ),
    "lease": st.sampled_from([0, 0, 1]).map(lambda number: dict(LEASES[number])),
    "counted": st.sampled_from([0, 5, 7]),
    "createdAt": st.sampled_from([BEGAN, BEGAN, SOON]),
    "items": st.sampled_from([1, 1, 2]).map(
        lambda quantity: [{"productId": "tea", "quantity": quantity}]
    ),
    "delta": st.sampled_from([-60, -3, 2]),
    "eventTime": st.sampled_from(
        [
            "2026-11-18T11:00:00.000000+00:00",
            "2026-11-18T12:00:00.000000+00:00",
            "2026-11-18T12:30:00.5+01:00",
        ]
    ),
}


def documents(schema, name=""):
    """Generate documents that a schema allows, many of them with values that exist in the tables."""
    kind = schema.get("type")
    if name in RULED:
        return RULED[name]
    if "enum" in schema:
        made = st.sampled_from(schema["enum"])
    elif isinstance(kind, list):
        made = st.one_of(documents({**schema, "type": each}) for each in kind)
    elif "propertyNames" in schema:
        names, values = (
            documents({**schema["propertyNames"], "type": "string"}),
            schema["additionalProperties"],
        )
        made = st.dictionaries(names, documents(values), max_size=3)
    elif kind == "object":
        fields = {key: documents(inner, key) for key, inner in schema["properties"].items()}
        required = {key: fields.pop(key) for key in schema["required"]}
        made = st.fixed_dictionaries(required, optional=fields)
        if "dependencies" in schema:
            needs = schema["dependencies"]
            made = made.filter(lambda each: not missing_beside_others(each, needs))
        if "anyOf" in schema:
            one_of = [each["required"] for each in schema["anyOf"]]
            made = made.filter(lambda each: any(each.keys() >= {*names} for names in one_of))
        if "scanned" in schema["properties"]:
            made = made.map(with_own_scans)
    elif kind == "array":
        made = st.lists(documents(schema["items"]), min_size=schema.get("minItems", 0), max_size=4)
    elif schema.get("format") == "date-time":
        offset = st.sampled_from(["Z", "z", "+02:00", "-23:59"])
        made = st.builds(lambda at, end: at.isoformat() + end, MOMENTS, offset)
    elif kind == "string":
        pattern = schema.get("pattern")
        made = any_text if pattern is None else st.from_regex(to_the_end(pattern))
    elif kind == "boolean":
        made = st.booleans()
    else:
        made = st.integers(schema.get("minimum", -(10**18)), schema.get("maximum", 10**19))
        made = made.filter(lambda number: number != schema.get("not", {}).get("const"))
    if name not in LIKELY:
        return made
    # Hypothesis draws both alternatives equally often, so hardly any message would consist of known values.
    likely = 4 if name == "items" else 7
    return st.integers(1, 8).flatmap(lambda number: LIKELY[name] if number <= likely else made)


RULED = {
    "barcodes": st.sampled_from(
        [[], [{"code": "4006381333931"}], [{"code": "=1"}, {"code": "14006381333938", "units": 12}]]
    ),
    "scanned": st.just({"tea": ["(01)04006381333931(10)L-7"]}),
}
"""Values of fields with rules that a schema cannot express."""


def with_own_scans(command):
    """Keep what was scanned only if it belongs to the command's products."""
    named = {each.get("productId") for each in command.get("items", [command])}
    return {name: of for name, of in command.items() if name != "scanned" or of.keys() <= named}


MOMENTS = st.datetimes(*map(datetime.fromisoformat, ("2000-01-01", "2100-01-01")))


def to_the_end(pattern):
    """Translate `$`, which in a schema means the end of the string. In Python's `re`, a line break may still follow
    it."""
    return re.sub(r"\$$", r"\\Z", pattern)


any_text = st.text(st.characters(exclude_categories=()), max_size=20)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


ODD = st.sampled_from(
    [
        *("null", "true", "false", "0", "-1", "1.5", "2.0", "1e400", "NaN", "1" * 21, "1" * 400),
        *(
            '""',
            '" "',
            '"\\n"',
            '"o-1\\n"',
            '"\\u0000"',
            '"\\ud800"',
            '"\U0001f375"',
            '"1"',
            '"NaN"',
        ),
        *("[]", "{}", "[[]]", '{"": {}}', "[" * 200 + "]" * 200, f'"{"x" * 300}"'),
    ]
).map(json.loads)


def places(value):
    """List each place in a document, as its container and its key."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in inner:
        yield value, key
        if isinstance(held, dict | list):
            yield from places(held)


@st.composite
def broken(draw, whole):
    """Generate a valid document with one or two errors added."""
    document = copy.deepcopy(draw(whole))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from([*places(document)] or [(document, None)]))
        how = draw(st.sampled_from(["replace", "remove", "add", "rename"]))
        if how == "add" or key is None or isinstance(container, list):
            if isinstance(container, dict):
                container[draw(any_text)] = draw(ODD | any_json)
            else:
                container.append(draw(ODD))
        elif how == "replace":
            container[key] = draw(ODD | any_json)
        elif how == "remove":
            del container[key]
        else:
            container[draw(any_text)] = container.pop(key)
    return document


@st.composite
def written(draw, values):
    """Encode a value as a JSON library would, or with typical mistakes."""
    text = json.dumps(draw(values), ensure_ascii=draw(st.booleans()))
    habit = draw(st.sampled_from(["plain", "plain", "spaced", "twice", "exponent", "cut"]))
    if habit == "spaced":
        return f"\n\t {text} \r\n"
    if habit == "twice" and re.match(r'\{"', text):
        return (
            "{"
            + f'"{draw(st.sampled_from(["orderId", "productId", "extra"]))}": "o-1", '
            + text[1:]
        )
    if habit == "exponent":
        return re.sub(r"(?<=: )(\d+)", r"\g<1>e0", text)
    return text[:-1] if habit == "cut" else text


def known_commands(function):
    """List commands for existing rows. Each command succeeds for some rows and is refused for others."""
    if function == "count_stock":
        yield {"action": "release", "lease": LEASES[1]}
        for lease in (*LEASES, LEASES[0] | {"owner": "count-another"}):
            yield {"action": "renew", "lease": lease, "seconds": 60}
            yield {"action": "commit", "lease": lease, "counted": 7, "adjustmentId": "a-1"}
            yield {"action": "release", "lease": lease}
    if function == "manage_products":
        for product_id in ("tea", "ended", "counted", "no-such"):
            yield {"action": "discontinue", "productId": product_id}
            yield {"action": "listAgain", "productId": product_id}
    if function != "change_orders":
        return
    for order_id in [*ORDERS, "o-1"]:
        for action in ("confirm", "fulfil", "cancel"):
            yield {"action": action, "orderId": order_id}
        for until in ("2026-11-18T11:00:00Z", "2026-11-18T15:30:00+01:00", "2027-01-01T00:00:00Z"):
            yield {"action": "extend", "orderId": order_id, "until": until}
        for step_id, quantity in (("rt-1", 1), ("rt-1", 2), ("rt-1", 50), ("s-1", 1)):
            part = {"stepId": step_id, "items": [{"productId": "tea", "quantity": quantity}]}
            for action in ("fulfil", "cancel"):
                yield {"action": action, "orderId": order_id, **part}
            for restock in (True, False):
                yield {"action": "return", "orderId": order_id, **part, "restock": restock}
        for step_id, quantity in (("s-2", 1), ("s-2", 2), ("s-2", 50), ("s-1", 1)):
            part = {"stepId": step_id, "items": [{"productId": "tea", "quantity": quantity}]}
            yield {"action": "cancel", "orderId": order_id, **part, "restock": False}


def orders():
    """Generate orders, most of them with unused ids."""
    made = documents(json_schema("order"))
    ids = st.sampled_from(["o-1", "o-2", None])
    return st.builds(lambda order, i: order if i is None else order | {"orderId": i}, made, ids)


# Made once for each function, because Hypothesis would validate new strategies again for each example.
@functools.cache
def valid_messages(function):
    if function == "place_orders":
        return orders()
    if SCHEMA_OF[function] is not None:
        return documents(json_schema(SCHEMA_OF[function]))
    known = st.sampled_from([*known_commands(function)])
    return known | st.one_of(
        documents(schema).map(lambda command, action=action: {**command, "action": action})
        for action, schema in json_schema("commands")[function].items()
    )


@functools.cache
def bodies(function):
    good = valid_messages(function)
    return st.one_of(
        st.just(json.dumps(GOOD[function])),
        good.map(json.dumps),
        written(good),
        written(broken(good)),
        written(any_json),
        any_text,
    )


def order(version, status, **changes):
    return order_row("o-1", _version=version, status=status, **changes)


def product(version, status, **changes):
    return product_row(status, _version=version, **changes)


SHORTAGE = {"productId": "tea", "wanted": 2, "available": 1}
TOO_LATE = {"at": SOON, "reason": "ORDER_EXPIRED"}
PART_OF_IT = [{"productId": "tea", "quantity": 1, "returnedVersion": 9}]
MOVED = [
    {"action": "fulfil", "at": SOON},
    {"action": "return", "at": SOON, "stepId": "rt-1", "items": PART_OF_IT, "restock": True},
]
TOMBSTONE = order(1, "CANCELLED", userId=None, items=[])
CHANGES = {
    "Orders": [
        (None, order(2, "PENDING", holdSeconds=900, expiresAt=SOON, attributes={"vip": True})),
        (None, order(2, "REJECTED", reason="INSUFFICIENT_STOCK", shortages=[SHORTAGE])),
        (None, TOMBSTONE),
        (TOMBSTONE, order(2, "CANCELLED")),
        (order(1, "PENDING"), order(2, "CONFIRMED", confirmedAt=SOON)),
        (order(1, "PENDING"), order(2, "EXPIRED", confirmationRejected=TOO_LATE)),
        (order(1, "CONFIRMED"), order(2, "FULFILLED", fulfilledAt=SOON, steps=MOVED)),
    ],
    "Products": [
        (product(1, "ACTIVE"), product(2, "LOW_STOCK", name="Tea", price=1290)),
        (product(1, "LOW_STOCK"), product(2, "OUT_OF_STOCK")),
        (product(1, "OUT_OF_STOCK"), product(2, "ACTIVE")),
        (product(1, "LOW_STOCK"), product(2, "DISCONTINUED")),
    ],
}
"""Generate a possible stream record: a row before and after a change."""

ATTRIBUTES = st.sampled_from(
    [
        *({"S": ""}, {"S": "ON_HOLD"}, {"S": "CANCELLED"}, {"S": "DISCONTINUED"}, {"S": 7}),
        *({"N": "0"}, {"N": "-1"}, {"N": "0.5"}, {"N": "1E+125"}, {"N": "-1E-130"}, {"N": 2}),
        *({"N": "9" * 5000}, {"N": "1E+6000"}, {"N": "NaN"}, {"N": "-Infinity"}, {"N": "two"}),
        *({"NULL": True}, {"BOOL": False}, {"B": "AA=="}, {"SS": ["a"]}, {"NS": ["1"]}),
        *({"BS": ["AA=="]}, {"L": []}, {"L": [{}]}, {"L": [{"SS": ["a"]}]}, {"L": {}}),
        *({"M": {}}, {"M": {"": {"L": [{"M": {"": {"B": "AA=="}}}]}}}, {"M": []}, {"X": "a"}, {}),
    ]
).map(copy.deepcopy)


@st.composite
def broken_changes(draw, table):
    """Generate a change to a row in which an attribute, an image, or anything else is broken."""
    record = change(*draw(st.sampled_from(CHANGES[table])))
    images = record["dynamodb"]
    name = draw(st.sampled_from(["NewImage", "OldImage"] if "OldImage" in images else ["NewImage"]))
    attribute = draw(st.sampled_from(sorted(images[name])))
    how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "without", "break"]))
    if how == "break":
        return draw(broken(st.just(record)))
    if how == "replace":
        images[name][attribute] = draw(ATTRIBUTES)
    elif how == "remove":
        del images[name][attribute]
    else:
        del images[name]
    return record


# ------------------------------------------------------------------ expectations


INVALID = object()


def strictly(text):
    """Parse a JSON document by the strict rules of the contract. Returns INVALID if it breaks them."""

    def reject(*_):
        raise ValueError

    def unique(pairs):
        return dict(pairs) if len(dict(pairs)) == len(pairs) else reject()

    def short(digits):
        return int(digits) if len(digits) <= 20 else reject()

    try:
        return json.loads(
            text,
            parse_int=short,
            # No schema accepts null, or a number with a decimal point.
            parse_float=lambda _: None,
            parse_constant=reject,
            object_pairs_hook=unique,
        )
    except (ValueError, RecursionError):
        return INVALID


@functools.cache
def validator(schema):
    """Make an independent validator for a schema."""

    def matches(_validator, pattern, text, _schema):
        if isinstance(text, str) and not re.search(to_the_end(pattern), text):
            yield jsonschema.ValidationError(f"does not match {pattern}")

    kind = jsonschema.validators.extend(jsonschema.Draft7Validator, {"pattern": matches})
    return kind(json.loads(schema))


def missing_beside_others(document, dependencies):
    """List the fields that are missing but required because of other fields of the document."""
    return [
        needed
        for name, (needed,) in dependencies.items()
        if name in document and needed not in document
    ]


def faults(document, schema):
    """Find the wrong fields of a document. The result `the message` means the document as a whole."""
    result = set()
    for error in validator(json.dumps(schema)).iter_errors(document):
        path = "".join(
            f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path
        ).removeprefix(".")
        names = []
        if error.validator == "required":
            names = [name for name in error.validator_value if name not in error.instance]
        elif error.validator == "additionalProperties":
            names = [name for name in error.instance if name not in error.schema["properties"]]
        elif error.validator == "dependencies":
            names = missing_beside_others(error.instance, error.validator_value)
        result |= {".".join(filter(None, [path, shown(name)])) for name in names} or {
            path or "the message"
        }
    return result


def wrong_fields(function, document):
    """Find the wrong fields of a message in a queue."""
    if SCHEMA_OF[function] is not None:
        return faults(document, json_schema(SCHEMA_OF[function]))
    action = document.get("action") if isinstance(document, dict) else None
    schema = json_schema("commands")[function].get(action) if isinstance(action, str) else None
    return faults(document, schema) if schema is not None else {"action"}


def is_nonsense(function, document):
    """Whether a document is wrong in a way that its schema cannot describe."""
    if function == "manage_products":
        return not "2000" < document["eventTime"] <= SOON or "T24" in document["eventTime"]
    return False


def is_applied(world, function, document):
    """Whether the tables show that a message was processed."""
    if function == "expire_orders":
        # An expiry within the grace period is acknowledged: the sweeper finds the order again.
        row = world.row("Orders", document["orderId"]) or {}
        return row.get("status") != "PENDING" or row.get("expiresAt", SOON) > GRACE_BEGAN
    if is_done(world.row, function, document):
        return True
    row = world.row("Orders", document.get("orderId"))
    return function == "change_orders" and is_answered_with_no(row, document)


def check_batch(world, function, event, answer, *, sqs_fails):
    """Check that every message has exactly one outcome, and the right one."""
    records = event["Records"]
    returned = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
    assert len(set(returned)) == len(returned)
    assert set(returned) <= {record["messageId"] for record in records}
    ours = FEED_OF[function]
    if function in ("change_orders", "expire_orders"):
        is_expiry = bool(records) and records[0]["eventSourceARN"].endswith("ExpiryQueue")
        ours = "Expiry" if is_expiry else "OrderCommand"
    dead_letters = {}
    for queue, letter in world.dead_letters:
        texts = texts_of(letter)
        assert queue == f"{'OrderFifo' if letter.group else ours}DeadLetter"
        assert texts.keys() == {"errorCode", "errorMessage", "originalMessageId"}
        assert texts["errorCode"] in CAUSES
        assert re.fullmatch("[ -~]{1,512}", texts["errorMessage"])
        assert texts["originalMessageId"] not in dead_letters
        dead_letters[texts["originalMessageId"]] = letter.body, texts
    copies = {}
    for queue, copy_ in world.messages(*FEEDS):
        original = texts_of(copy_)["originalMessageId"]
        assert queue == ours
        assert original not in copies
        copies[original] = copy_.body
    assert len(dead_letters) + len(copies) + len(returned) <= len(records)
    for record in records:
        message_id, body = record["messageId"], record["body"]
        document = strictly(body)
        wrong = document is INVALID or wrong_fields(function, document)
        if message_id in dead_letters:
            unchanged, texts = dead_letters[message_id]
            assert message_id not in returned
            assert unchanged == body
            if wrong:
                check_reason(document, wrong, body, texts)
            else:
                assert texts["errorCode"] != "INVALID_JSON"
        elif message_id in copies:
            assert message_id not in returned
            assert copies[message_id] == body
            assert not wrong, body
        elif message_id not in returned:
            assert not wrong, body
            assert not is_nonsense(function, document)
            assert is_applied(world, function, document)
        elif wrong and "MessageGroupId" not in (record.get("attributes") or {}):
            assert sqs_fails or not is_sendable(body), (
                "an invalid message is only returned if it cannot be dead-lettered"
            )
    check_books(world)


def check_reason(document, wrong, body, texts):
    """Check that an error names the wrong field, or the position of the mistake in the text."""
    message = texts["errorMessage"]
    if document is not INVALID:
        assert texts["errorCode"] == "SCHEMA_VIOLATION"
        assert any(message.startswith(f"{field}:") for field in wrong), (message, wrong)
        return
    assert texts["errorCode"] == "INVALID_JSON"
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        assert re.search(
            "line [0-9]+, column [0-9]+|nested too deeply| is not |twice|digits", message
        )
    else:
        if isinstance(document, dict):
            names = "|".join(re.escape(shown(name)) for name in document)
            assert re.match(rf"({names})[:.\[]", message), message
        elif isinstance(document, list):
            assert re.match(r"\[[0-9]+\]", message), message


def shown(name):
    return json.dumps(name[:64])[1:-1] or '""'


def check_books(world):
    """Check that no stock is below its limit, and that every unit is accounted for."""
    assert set(world.shop.unexplained().values()) == {0}
    assert all(int(row["stockCount"]["N"]) >= 0 for row in world.rows("Products"))
    for row in map(decode, world.rows("Orders")):
        still_open, delivered = units_of(row)
        assert min([0, *still_open.values(), *delivered.values()]) == 0
        assert row["status"] not in ("CANCELLED", "EXPIRED") or not +still_open


def is_no_news(record):
    """Whether a change must not be published, because the status is unchanged, the row is a tombstone, or the shop
    itself made the change."""
    images = record["dynamodb"]
    before = {} if record["eventName"] == "INSERT" else images["OldImage"]
    after = images["NewImage"]
    was, now = before.get("status", {}), after.get("status", {})
    if "orderId" in images["Keys"]:
        tombstone = "userId" not in before | after and "CANCELLED" in now.values()
        return was == now or tombstone
    return was == now or "DISCONTINUED" in {*was.values(), *now.values()}


def queue_of(function):
    return FEEDS[FEED_OF[function]].queue


FEED_OF = {
    "place_orders": "Order",
    "adjust_stock": "Stock",
    "manage_products": "Catalogue",
    "change_orders": "OrderCommand",
    "expire_orders": "Expiry",
}


# ------------------------------------------------------------------ the tests


@pytest.mark.parametrize("function", SCHEMA_OF)
def test_every_message_of_any_batch_has_exactly_one_outcome(world, function):
    world.met.clear()

    @settings(fuzz, max_examples=EXAMPLES.get(function, 20))
    @given(data=st.data())
    def run(data):
        is_fifo = function == "place_orders" and data.draw(st.sampled_from([False, False, True]))
        event = sqs_event(
            *data.draw(st.lists(bodies(function), max_size=4)),
            group="g" if is_fifo else None,
            receive_count=data.draw(st.sampled_from([1, 20])),
            queue=queue_of(function),
        )
        fails = data.draw(st.sampled_from([False, False, True]))
        answer = world.invoke(function, event, sqs_fails=fails)
        check_batch(world, function, event, answer, sqs_fails=fails)
        if function == "manage_products" and not fails:
            taken = sum("detailsEventId" in row for row in world.rows("Products"))
            world.met["event", Outcome.APPLIED] += taken
            world.met["event", Outcome.REJECTED] += len(answer["batchItemFailures"])

    run()
    for kind in KINDS[function]:
        assert world.met[kind, Outcome.APPLIED], f"no {kind} was applied"
        assert world.met[kind, Outcome.REJECTED], f"no {kind} was rejected"


EXAMPLES = {"place_orders": 60, "adjust_stock": 40, "change_orders": 60, "manage_products": 80}
KINDS = {
    "place_orders": ["Order"],
    "adjust_stock": ["Adjustment"],
    "manage_products": ["event"],
    "change_orders": [],
    "expire_orders": ["expire"],
}
"""The kinds of changes from each queue. The generated messages must be good enough for each kind to be both applied and
rejected. For commands, see `test_commands_in_batches_are_each_applied_and_rejected`."""

GOOD = {
    "place_orders": {"orderId": "o", "userId": "u", "items": [{"productId": "tea", "quantity": 1}]},
    "adjust_stock": {"adjustmentId": "a", "productId": "tea", "delta": 1, "reason": "RECEIPT"},
    "manage_products": {
        "eventId": "e",
        "eventTime": "2026-11-18T11:00:00.000000+00:00",
        "productId": "tea",
        "details": {},
    },
    "change_orders": {"action": "confirm", "orderId": "o-later"},
    "expire_orders": {"orderId": "o-held"},
}
KILOBYTES_256 = 262_144


@pytest.mark.parametrize("function", SCHEMA_OF)
def test_the_largest_messages_have_the_same_outcomes_as_others(world, function):
    good = json.dumps(GOOD[function])
    deep = "[" * 500 + "]" * 500
    large = [
        *("[" * KILOBYTES_256, '{"a":' * (KILOBYTES_256 // 5)),
        *("9" * KILOBYTES_256, "x" * KILOBYTES_256),
        "[" * 500 + "0," * (KILOBYTES_256 // 2) + "NaN" + "]" * 500,
        '{"a":' * 500 + "[" + '{"a":1,"a":2},' * (KILOBYTES_256 // 15) + "0]" + "}" * 500,
        f'{{"orderId": "{"o" * KILOBYTES_256}"}}',
        f'{{"{"k" * KILOBYTES_256}": 1.5}}',
        good[:-1] + f', "{"k" * KILOBYTES_256}": 1}}',
        good[:-1] + f', "k": {deep}}}',
        good[:-1] + f', "locations": [{deep}], "items": [{deep}]}}',
        good[:-1] + ', "k": [' + "1," * (KILOBYTES_256 // 2) + "1]}",
        "\U0001f375" * (KILOBYTES_256 // 4),
        good + " " * (KILOBYTES_256 - len(good)),
    ]
    event = sqs_event(*large, queue=queue_of(function))
    answer = world.invoke(function, event)
    check_batch(world, function, event, answer, sqs_fails=False)
    assert answer == {"batchItemFailures": []}
    assert len(world.dead_letters) == len(large) - 1, "the last one is valid except for its length"


@pytest.mark.parametrize("function", SCHEMA_OF)
@fuzz
@given(data=st.data())
def test_an_event_that_sqs_would_not_send_loses_nothing(world, function, data):
    """Check that an event with missing attributes or an unexpected source or type is processed either completely or not
    at all."""
    groups = [None, "g"] if function == "place_orders" else [None]
    group = data.draw(st.sampled_from(groups))
    good = st.just(sqs_event(GOOD[function], "invalid", group=group, queue=queue_of(function)))
    event = data.draw(broken(good))
    answer = world.invoke(function, event)
    if "code" not in answer:
        check_batch(world, function, event, answer, sqs_fails=False)
        return
    assert answer["message"]
    assert world.nothing_was_done()
    if "Records" in event:
        assert answer["batchItemFailures"] == [{"itemIdentifier": ""}], "the whole batch failed"


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *(("attributes", value) for value in (None, [], {}, {"ApproximateReceiveCount": 1e400})),
        *(("body", value) for value in (None, 7, {}, json.loads("[" * 900 + "]" * 900))),
        *(("messageId", value) for value in (None, 7, [])),
        *(("eventSource", value) for value in (None, "aws:kinesis", "aws:s3", "\ud800", {})),
        *(("eventSourceARN", value) for value in (None, 7, "queue.fifo")),
    ],
)
@pytest.mark.parametrize("function", SCHEMA_OF)
def test_an_odd_record_loses_nothing(world, function, where, value):
    event = sqs_event(GOOD[function], queue=queue_of(function))
    event["Records"][0][where] = value
    answer = world.invoke(function, event)
    if where == "attributes":
        assert answer == {"batchItemFailures": []}
        assert is_applied(world, function, GOOD[function])
    else:
        assert answer["batchItemFailures"] == [{"itemIdentifier": ""}]
        assert world.nothing_was_done()


BEFORE = [
    change(None, order(1, "PENDING")),
    change(product(0, "LOW_STOCK"), product(1, "OUT_OF_STOCK")),
]
AFTER = [
    change(order(2, "CONFIRMED"), order(3, "FULFILLED")),
    change(product(2, "ACTIVE"), product(3, "LOW_STOCK")),
]
NEIGHBOURS = {
    "o-1": ["#1#OrderPlaced", "#3#OrderFulfilled"],
    "tea": ["#1#ProductOutOfStock", "#3#ProductLowOnStock"],
}
"""The endings of the ids of the events that these changes cause, by subject."""


@pytest.mark.parametrize("table", CHANGES)
@settings(fuzz, max_examples=50)
@given(data=st.data())
def test_a_broken_change_is_published_or_parked_and_affects_no_other(world, table, data):
    record = data.draw(broken_changes(table))
    world.invoke("publish_events", {"Records": [*BEFORE, record, *AFTER]})
    outcomes = world.bus.outcomes
    for subject, ends in NEIGHBOURS.items():
        ours = [
            each for each in outcomes if each.startswith(subject) and each.endswith(tuple(ends))
        ]
        assert len(ours) == 2
        assert all(map(str.endswith, ours, ends)), "in their order"
    if world.parked:
        (parked,) = world.parked
        texts = texts_of(parked)
        assert texts["errorCode"] in ("UNREADABLE_ROW", "UNKNOWN_ORDER_STATUS")
        assert texts["errorMessage"] != "?", "there is a reason"
        assert parked.body == json.dumps({"record": record}), "whole"
        assert len(outcomes) == 4
    elif len(outcomes) == 4:
        assert is_no_news(record)


COMMANDS = [("place_orders", "place")] + [
    (function, action)
    for function, actions in json_schema("commands").items()
    for action in actions
]
DEFAULTS = {"adjust_stock": "adjust", "place_orders": "place"}


def faults_of_command(function, document):
    """Find the wrong fields of a direct command."""
    document = {"action": DEFAULTS.get(function), **document}
    action = document["action"]
    if function == "place_orders":
        # An order has no field `action`, so any other action is one of its wrong fields.
        if action == "place":
            del document["action"]
        return faults(document, json_schema("order"))
    schemas = json_schema("commands").get(function, {})
    known = isinstance(action, str) and action in schemas
    return faults(document, schemas[action]) if known else {"action"}


@pytest.mark.parametrize("function", function_names())
@fuzz
@given(event=any_json)
def test_any_direct_invocation_is_answered(world, function, event):
    answer = world.invoke(function, event)
    assert answer["code"] in ("UNSUPPORTED_EVENT", "INVALID_JSON", "SCHEMA_VIOLATION")
    assert answer["message"]
    assert world.nothing_was_done()


@pytest.mark.parametrize(("function", "action"), COMMANDS)
def test_a_command_is_carried_out_or_its_wrong_field_is_named(world, function, action):
    of_order = function == "place_orders"
    made = orders() if of_order else documents(json_schema("commands")[function][action])
    named = made.map(lambda command: {**command, "action": action})
    commands = named | broken(named)
    results = Counter()

    @fuzz
    @given(data=st.data())
    def run(data):
        command = data.draw(commands)
        answer = world.invoke(function, command)
        document = strictly(json.dumps(command))
        wrong = document is not INVALID and faults_of_command(function, document)
        if document is INVALID:
            assert answer["code"] == "INVALID_JSON"
            assert answer["field"]
        elif wrong and of_order and answer["code"] == "UNSUPPORTED_EVENT":
            assert "orderId" in wrong, "only with its id, an event without an action is an order"
        elif wrong:
            assert answer["code"] in ("SCHEMA_VIOLATION", "UNSUPPORTED_EVENT")
            assert (answer["field"] or "the message") in wrong
            assert answer["message"].startswith(f"{answer['field'] or 'the message'}:")
        else:
            assert answer["result"] != "INVALID" or answer["code"] in (
                "SCHEMA_VIOLATION",
                "EVENT_FROM_THE_FUTURE",
                "STEP_ID_REUSED",
                "ORDER_ID_REUSED",
            )
            assert answer.get("field") in FIELDS
        if answer["result"] == "INVALID":
            assert world.nothing_was_done()
        else:
            assert answer["result"] in RESULTS, answer
            check_books(world)
            check_answer(world, function, document, answer)
            results[answer["result"]] += 1

    run()
    assert results, "no command was valid"


@pytest.mark.parametrize("function", ["change_orders", "count_stock", "manage_products"])
def test_each_action_is_carried_out_and_refused_and_the_tables_agree(world, function):
    results = {}
    for command in known_commands(function):
        kind = command["action"], "items" in command
        answer = world.invoke(function, command)
        assert answer["result"] in RESULTS or answer["code"] == "STEP_ID_REUSED", (command, answer)
        check_answer(world, function, command, answer)
        check_books(world)
        results.setdefault(kind, set()).add(answer["result"])
    for kind, seen in results.items():
        assert seen & DONE, f"{kind} was never carried out"
        assert seen & NOT_DONE, f"{kind} was never refused"


def test_commands_in_batches_are_each_applied_and_rejected(world):
    world.met.clear()
    commands = [*known_commands("change_orders")]
    # With a stride coprime to the length, so that batches mix commands for the same order and for others.
    mixed = [commands[number * 25 % len(commands)] for number in range(len(commands))]
    for batches in (commands, mixed):
        for start in range(0, len(batches), 4):
            event = sqs_event(*batches[start : start + 4])
            answer = world.invoke("change_orders", event)
            check_batch(world, "change_orders", event, answer, sqs_fails=False)
    actions = ("confirm", "extend", "fulfil", "fulfil a part", "cancel", "cancel a part", "return")
    actions += ("cancel what is lost",)
    for kind in actions:
        assert world.met[kind, Outcome.APPLIED], f"no {kind} was applied"
        assert world.met[kind, Outcome.REJECTED], f"no {kind} was rejected"


def check_answer(world, function, command, answer):
    """Check that the answer to a direct command matches the tables."""
    done = answer["result"]
    if function == "place_orders" and done != "RETRY_LATER":
        assert command["orderId"] in ORDERS or is_applied(world, function, command)
    elif function == "change_orders" and done in ("APPLIED", "REPLAYED", "REFUSED"):
        before = world.start("Orders", orderId=command["orderId"])
        after = world.row("Orders", command["orderId"])
        if done == "REFUSED":
            assert after == before or "confirmationRejected" in after
        else:
            assert (after != before) is (done == "APPLIED")
            assert is_applied(world, function, command)
    elif function == "count_stock" and done in ("COMMITTED", "RENEWED", "RELEASED"):
        lease = command["lease"]
        row = world.row("Products", lease["productId"])
        assert (row.get("lockedBy") == lease["owner"]) is (done == "RENEWED")
        assert done != "COMMITTED" or row["onHand"] == command["counted"]


FIELDS = {
    *(None, "eventTime", "to", "name", "price", "stepId", "items", "attributes", "orderId"),
    *("barcodes", "limitGroup", "safetyStock"),
}
"""The fields whose values may be wrong in a way that their schema cannot describe."""
DONE = {"APPLIED", "ACQUIRED", "BEGUN", "RENEWED", "RELEASED", "COMMITTED", "SWEPT"}
NOT_DONE = {"REFUSED", "RETRY_LATER", "STALE", "LEASE_WAS_OVER", "COUNTED_BEFORE"}
RESULTS = {"REPLAYED", *DONE, *NOT_DONE}
