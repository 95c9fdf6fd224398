"""The settings in cdk.json, validated before anything is built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

MAX_LANES = 90
"""One transaction can look into a page of each lane, and has room for the depot's page and the product's row."""


class SettingsError(Exception):
    """A setting is missing, unknown or out of range; the message names it and the allowed values."""


def _between(least: int, most: int) -> Mapping[str, tuple[int, int]]:
    """Limit a number: for the metadata of a field."""
    return {"between": (least, most)}


def spelt(attribute: str) -> str:
    """Spell the name of an attribute as in cdk.json."""
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass(frozen=True)
class FunctionSettings:
    """Settings of one Lambda function.

    Attributes:
        memoryMegabytes: Memory in MB. CPU grows in proportion.
        timeoutSeconds: How long an invocation may run. The sweep stays below 60 s, so that no two run at once.
    """

    memoryMegabytes: int = field(metadata=_between(128, 10_240))  # noqa: N815 - spelt as in cdk.json
    # Half of the time is reserved for the slowest last call and for settling the batch.
    timeoutSeconds: int = field(metadata=_between(25, 900))  # noqa: N815

    def __post_init__(self) -> None:
        _check_numbers(self)


@dataclass(frozen=True)
class QueueSettings:
    """How a queue feeds its function.

    Attributes:
        batchSize: Most messages for one invocation; for the FIFO queue 10 at most.
        maximumConcurrency: Most invocations at the same time. Raise it when the queue's age grows while the conflict rate
            and the wait for the depot are low.
        batchWindowSeconds: How long to wait for a batch to fill: at least 1 if batchSize is above 10 (a rule of SQS), and
            never for the FIFO queue. With a window of any length a quiet queue may wait for 20 seconds:
            docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
    """

    batchSize: int = field(metadata=_between(1, 10_000))  # noqa: N815
    maximumConcurrency: int = field(metadata=_between(2, 1_000))  # noqa: N815
    batchWindowSeconds: int = field(default=0, metadata=_between(0, 300))  # noqa: N815

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.batchSize > 10:
            _check("batchWindowSeconds", self.batchWindowSeconds, 1, 300)


@dataclass(frozen=True)
class WarmThroughput:
    """Capacity that a table has at once, for an announced drop.

    DynamoDB never lowers it again, and raises it by itself under load. So a setting that stays becomes lower than what
    the table has, and `make deploy` refuses it. Left out, the table keeps what it has.

    Attributes:
        readUnitsPerSecond: Read units that the table takes at once. Those of `Orders` count for its indexes too.
        writeUnitsPerSecond: Write units that the table takes at once.
    """

    # Every on-demand table has the least of both.
    readUnitsPerSecond: int = field(metadata=_between(12_000, 10_000_000))  # noqa: N815
    writeUnitsPerSecond: int = field(metadata=_between(4_000, 10_000_000))  # noqa: N815

    def __post_init__(self) -> None:
        _check_numbers(self)


@dataclass(frozen=True)
class ApiLimits:
    """How often the HTTP API may be called, by all callers together.

    API Gateway keeps the first two by best effort: docs.aws.amazon.com/apigateway/latest/developerguide/http-api-throttling.html

    Attributes:
        requestsPerSecond: Most requests in each second, by best effort. API Gateway answers the others with 429.
        burst: Most requests at once, by best effort.
        concurrentExecutions: Most requests that are answered at a time, reserved for the API. Without it: as many as the
            account allows.
    """

    requestsPerSecond: int = field(default=200, metadata=_between(1, 10_000))  # noqa: N815
    burst: int = field(default=400, metadata=_between(1, 5_000))
    concurrentExecutions: int | None = field(  # noqa: N815
        default=None, metadata=_between(1, 10_000)
    )

    def __post_init__(self) -> None:
        _check_numbers(self)


@dataclass(frozen=True)
class Jwt:
    """Whose tokens open the HTTP API.

    Attributes:
        issuer: The address of the issuer, as in the tokens' `iss`.
        audience: A list: the tokens' `aud` or `client_id` is one of it.
        operators_claim: `name` and `value` of the claim that makes an operator of the bearer.
    """

    issuer: str
    audience: tuple[str, ...]
    operators_claim: tuple[str, str] | None = None


@dataclass(frozen=True)
class Settings:
    """All settings of the stack.

    Attributes:
        stage: Name of this deployed copy of the stack: 1 to 20 lowercase letters, digits and hyphens. It stands beside
            `settings`; the `make` targets name it.
        is_production: By the names of stages: whether the stage keeps its data and is protected against deletion. `prod` is
            unless this says `false`, and other stages are if it says `true`.
        runtime: Of Lambda: `python3.11`, `python3.12`, `python3.13` or `python3.14`.
        architecture: `arm64` or `x86_64`.
        log_level: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`.
        log_retention_days: One of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 731, 1827, 3653.
        functions: By the name of their folder in functions/.
        queues: By their name in the stack.
        lanes: At most so many lanes, in which stock is set aside for workers that sell side by side. Without it: as many as
            both order queues have workers (`maximumConcurrency`), at most 90. With fewer than before, the sweep brings the
            units of the others back to the rows.
        warm_throughput: By table: capacity that a table has at once, for an announced rush. It only ever grows.
        hold_seconds: How long an order that does not say so itself holds its stock without a confirmation. Without it: until
            it is cancelled.
        hold_grace_seconds: How long after the end of its hold an order still waits for a confirmation before it expires. Keep
            it at 60 or more: the depth of the queue of commands may be a minute old. The embedded AWS has 3.
        table_key: ARN of a KMS key of your own that encrypts the tables. Without it: the key that DynamoDB owns.
        alarm_email: The address that alarms are mailed to. AWS first mails it a link, and nothing else before it is followed.
        tracing: Whether Lambda samples invocations for AWS X-Ray (active tracing).
        api: Whether there is an HTTP API.
        api_limits: How often the API may be called.
        jwt: Whose tokens open the API. Without it, signatures (IAM) do.
        cors: A list of origins whose pages may call the API, such as `https://shop.example.com`. It needs `jwt`.
        show_stock: Whether the API shows the `numbers` of units on hand, or only the `availability` of products.
    """

    stage: str
    is_production: bool = field(metadata={"name": "production"})
    runtime: str
    architecture: str
    log_level: str
    log_retention_days: int
    functions: Mapping[str, FunctionSettings]
    queues: Mapping[str, QueueSettings]
    lanes: int = field(metadata=_between(1, MAX_LANES))
    warm_throughput: Mapping[str, WarmThroughput]
    hold_seconds: int | None = field(default=None, metadata=_between(60, 604_800))
    hold_grace_seconds: int = field(default=60, metadata=_between(0, 600))
    table_key: str | None = None
    alarm_email: str | None = None
    tracing: bool = False
    api: bool = True
    api_limits: ApiLimits = field(default_factory=ApiLimits)
    jwt: Jwt | None = None
    cors: tuple[str, ...] = ()
    show_stock: str = "availability"

    def __post_init__(self) -> None:
        _check_numbers(self, "settings.")

    @property
    def stack_name(self) -> str:
        """Name of the CloudFormation stack."""
        return f"InventoryOrders-{self.stage}"

    @property
    def service_name(self) -> str:
        """Value of the metric dimension `service`."""
        return f"inventory-orders-{self.stage}"

    @classmethod
    def from_context(
        cls, stage: object, settings: object, hold_grace: str | None = None
    ) -> Settings:
        """Read the settings from the CDK context.

        Args:
            stage: Name of the stage.
            settings: The settings of cdk.json.
            hold_grace: A number of seconds that takes the place of `holdGraceSeconds`.

        Raises:
            SettingsError: Something is missing, unknown or out of range.
        """
        if not isinstance(stage, str) or not _STAGE.fullmatch(stage):
            raise SettingsError(
                f"stage is {stage!r}; it must be 1 to 20 lowercase letters, digits or hyphens (-c stage=dev)"
            )
        known = {"runtime", "architecture", "logLevel", "logRetentionDays", "functions", "queues"}
        top = _object("settings", settings)
        _only(
            "settings",
            top,
            known
            | {"production", "lanes", "holdSeconds", "holdGraceSeconds", "warmThroughput"}
            | {"tableKey", "alarmEmail", "tracing", "api", "apiLimits", "jwt", "cors", "showStock"},
            known,
        )
        runtime = top["runtime"]
        if runtime not in RUNTIMES:
            raise SettingsError(
                f"settings.runtime is {runtime!r}; it must be one of {', '.join(RUNTIMES)}"
            )
        if top["architecture"] not in ("arm64", "x86_64"):
            raise SettingsError('settings.architecture must be "arm64" or "x86_64"')
        tracing, api = top.get("tracing", False), top.get("api", True)
        for name, value in (("tracing", tracing), ("api", api)):
            if not isinstance(value, bool):
                raise SettingsError(f"settings.{name} is {value!r}; it must be true or false")
        show_stock = top.get("showStock", "availability")
        if show_stock not in ("availability", "numbers"):
            raise SettingsError('settings.showStock must be "availability" or "numbers"')
        levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
        if top["logLevel"] not in levels:
            raise SettingsError(f"settings.logLevel must be one of {', '.join(levels)}")
        days = _RETENTION_DAYS
        if top["logRetentionDays"] not in days:
            raise SettingsError(
                f"settings.logRetentionDays must be one of {', '.join(map(str, days))}"
            )
        _only(
            "settings.functions",
            _object("settings.functions", top["functions"]),
            _FUNCTIONS,
            _FUNCTIONS,
        )
        _only("settings.queues", _object("settings.queues", top["queues"]), _QUEUES, _QUEUES)
        warm = _object("settings.warmThroughput", top.get("warmThroughput", {}))
        _only("settings.warmThroughput", warm, _TABLES, set())
        fifo = top["queues"]["OrderQueueFifo"]
        if isinstance(fifo, Mapping):
            _check_fifo("settings.queues.OrderQueueFifo", fifo)
        queues = _each("queues", top, QueueSettings)
        # A worker without a lane sells at the depot, in line with all others.
        workers = sum(queues[name].maximumConcurrency for name in ("OrderQueue", "OrderQueueFifo"))
        lanes = top.get("lanes", min(workers, MAX_LANES))
        hold_grace_seconds = top.get("holdGraceSeconds", cls.hold_grace_seconds)
        if hold_grace is not None:
            hold_grace_seconds = int(hold_grace) if hold_grace.isdecimal() else hold_grace
        table_key = top.get("tableKey")
        if table_key is not None:
            _texts("settings.tableKey", [table_key], _KEY, "the ARN of a key of KMS")
        jwt = _jwt(top.get("jwt"))
        cors = _texts("settings.cors", top.get("cors", []), _ORIGIN, "an origin")
        if cors and jwt is None:
            raise SettingsError(
                "settings.cors needs settings.jwt: without tokens callers sign with keys that open every route, and these do "
                "not belong in a web page"
            )
        return cls(
            stage=stage,
            is_production=_is_production(stage, top.get("production", {})),
            runtime=runtime,
            architecture=top["architecture"],
            log_level=top["logLevel"],
            log_retention_days=top["logRetentionDays"],
            functions=_each("functions", top, FunctionSettings),
            queues=queues,
            lanes=lanes,
            warm_throughput=_each("warmThroughput", top, WarmThroughput),
            hold_seconds=top.get("holdSeconds"),
            hold_grace_seconds=hold_grace_seconds,
            table_key=table_key,
            alarm_email=_email(top.get("alarmEmail")),
            tracing=tracing,
            api=api,
            api_limits=_api_limits(top.get("apiLimits", {})),
            jwt=jwt,
            cors=cors,
            show_stock=show_stock,
        )


RUNTIMES = ("python3.11", "python3.12", "python3.13", "python3.14")
"""The runtimes of Lambda for which this code is written."""

_STAGE = re.compile("[a-z0-9-]{1,20}")
_ORIGIN = re.compile(r"https?://[^\s/*]+")
_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+")
_ISSUER = re.compile(r"https://\S+")
_TEXT = re.compile(r"\S(.*\S)?")
_WORD = re.compile(r"[^\s,\[\]]+")
_FUNCTIONS = {
    *("place_orders", "adjust_stock", "change_orders", "manage_products", "count_stock"),
    *("sweep", "publish_events", "api"),
}
_QUEUES = {
    *("OrderQueue", "OrderQueueFifo", "StockQueue", "CatalogueQueue"),
    *("OrderCommandQueue", "ExpiryQueue"),
}
_TABLES = {"Products", "Orders", "StockAdjustments", "Allotments"}
_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 731, 1827, 3653)


def _is_production(stage: str, production: object) -> bool:
    """Read `settings.production`: true or false by stage. `prod` is production unless it says otherwise."""
    stages = {"prod": True, **_object("settings.production", production)}
    for name, value in stages.items():
        if not _STAGE.fullmatch(name):
            raise SettingsError(f"settings.production.{name}: no stage can have this name")
        if not isinstance(value, bool):
            raise SettingsError(
                f"settings.production.{name} is {value!r}; it must be true or false"
            )
    return stages.get(stage) is True


def _check_fifo(path: str, queue: Mapping[str, Any]) -> None:
    """Check the limits of a FIFO queue: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html."""
    if "batchWindowSeconds" in queue:
        raise SettingsError(f"{path}: a FIFO queue has no batchWindowSeconds")
    if "batchSize" in queue:
        try:
            _check(f"{path}.batchSize", queue["batchSize"], 1, 10)
        except SettingsError as error:
            raise SettingsError(f"{error}, the most that Lambda takes from a FIFO queue") from None


def _email(value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"[^@\s]+@[^@\s]+", value)):
        return value
    raise SettingsError(
        f"settings.alarmEmail is {value!r}; it must be an e-mail address, or be left out"
    )


def _api_limits(value: object) -> ApiLimits:
    limits = _object("settings.apiLimits", value)
    _only("settings.apiLimits", limits, {field.name for field in fields(ApiLimits)}, set())
    try:
        return ApiLimits(**limits)
    except SettingsError as error:
        raise SettingsError(f"settings.apiLimits.{error}") from None


def _jwt(value: object) -> Jwt | None:
    if value is None:
        return None
    jwt = _object("settings.jwt", value)
    _only("settings.jwt", jwt, {"issuer", "audience", "operatorsClaim"}, {"issuer", "audience"})
    (issuer,) = _texts("settings.jwt.issuer", [jwt["issuer"]], _ISSUER, "an https address")
    audience = _texts("settings.jwt.audience", jwt["audience"], _TEXT, "a text")
    if not audience:
        raise SettingsError("settings.jwt.audience is empty; name at least one audience")
    claim = jwt.get("operatorsClaim")
    if claim is None:
        return Jwt(issuer, audience)
    path = "settings.jwt.operatorsClaim"
    _only(path, _object(path, claim), {"name", "value"}, {"name", "value"})
    # A list of values reaches the function as a text, in which a space or a comma parts them.
    name, wanted = (
        _texts(f"{path}.{part}", [claim[part]], _WORD, "a word")[0] for part in ("name", "value")
    )
    return Jwt(issuer, audience, (name, wanted))


def _texts(path: str, values: object, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise SettingsError(f"{path} in cdk.json must be a list, but is {values!r}")
    for value in values:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise SettingsError(f"{path}: {value!r} must be {what}")
    return tuple(values)


def _check(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise SettingsError(
            f"{name} is {value!r}; it must be a whole number from {least} to {most}"
        )


def _check_numbers(settings: Any, path: str = "") -> None:
    for number in fields(settings):
        value = getattr(settings, number.name)
        if "between" in number.metadata and value is not None:
            _check(path + spelt(number.name), value, *number.metadata["between"])


def _object(path: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{path} in cdk.json must be an object, but is {value!r}")
    return value


def _only(path: str, value: Mapping[str, Any], known: set[str], required: set[str]) -> None:
    for name in sorted(value.keys() - known):
        raise SettingsError(f"{path}.{name} is unknown; known are {', '.join(sorted(known))}")
    for name in sorted(required - value.keys()):
        raise SettingsError(f"{path}.{name} is missing in cdk.json")


def _each(section: str, top: Mapping[str, Any], kind: type[T]) -> dict[str, T]:
    """Read a section that holds one object per function, queue or table."""
    all_fields = fields(kind)  # type: ignore[arg-type]  # T is one of the dataclasses above
    known = {field.name for field in all_fields}
    required = {field.name for field in all_fields if not isinstance(field.default, int)}
    result = {}
    for name, entry in _object(f"settings.{section}", top.get(section, {})).items():
        path = f"settings.{section}.{name}"
        values = _object(path, entry)
        _only(path, values, known, required)
        try:
            result[name] = kind(**values)
        except SettingsError as error:
            raise SettingsError(f"{path}.{error}") from None
    return result
