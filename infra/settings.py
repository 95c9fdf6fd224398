"""The settings of a stage: the defaults, overridden by cdk.json for all stages or for one.

`settings.schema.json` defines every setting with its meaning, default and allowed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from inventory_orders.naming import STAGE, service_name, stack_name

from .currencies import DIGITS

SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("settings.schema.json").read_text("utf-8")
)
DEFAULT = "default"
"""Source of a value that cdk.json does not set."""
_OVERRIDES = "overrides"

_validate = fastjsonschema.compile(SCHEMA)
_CONTEXT = ("stage", "settings", "stages", _OVERRIDES)

_MOST_LANES = SCHEMA["properties"]["lanes"]["maximum"]
_MOST_API_LANES = 30

# All environment variables of a function have at most 4 KB: docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MOST_BYTES_OF_ROLES = 2_000

# A confirmation has to be carried out before the grace ends. With a window, Lambda delays it for up to 20 seconds, or for
# the length of a longer window, and then it takes a few seconds. docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
_WINDOW_ENDS_BEFORE_GRACE_SECONDS = 30


class SettingsError(Exception):
    """A setting is unknown or out of range. The message names the setting and the allowed values."""


@dataclass(frozen=True)
class FunctionSettings:
    """The memory and timeout of one Lambda function, named as in the schema."""

    memoryMegabytes: int  # noqa: N815 - spelt as in cdk.json
    timeoutSeconds: int  # noqa: N815


@dataclass(frozen=True)
class QueueSettings:
    """How Lambda reads batches from a queue, named as in the schema."""

    batchSize: int  # noqa: N815
    maximumConcurrency: int  # noqa: N815
    batchWindowSeconds: int = 0  # noqa: N815


@dataclass(frozen=True)
class WarmThroughput:
    """A table's initial capacity, named as in the schema."""

    readUnitsPerSecond: int  # noqa: N815
    writeUnitsPerSecond: int  # noqa: N815


@dataclass(frozen=True)
class ApiLimits:
    """The limits of the HTTP API, named as in the schema."""

    requestsPerSecond: int  # noqa: N815
    burst: int
    concurrentExecutions: int | None  # noqa: N815


@dataclass(frozen=True)
class Jwt:
    """The tokens that the HTTP API accepts.

    Attributes:
        issuer: The issuer's address, as in the tokens' `iss`.
        audience: Allowed values of the tokens' `aud` or `client_id`.
        user_id_claim: Name of the claim with the user's id.
        operators_claim: Name and value of the claim that identifies an operator; None if there is no such claim.
    """

    issuer: str
    audience: tuple[str, ...]
    user_id_claim: str
    operators_claim: tuple[str, str] | None = None


@dataclass(frozen=True)
class Domain:
    """A domain of the desk and the API for customers.

    Attributes:
        name: Its name, such as `desk.shop.example`.
        certificate: The ARN of its certificate.
    """

    name: str
    certificate: str


@dataclass(frozen=True)
class Desk:
    """The hosted desk, and how its users sign in.

    Attributes:
        client_id: The id of the desk's client at the issuer.
        authorize: The address of the issuer's authorization endpoint.
        token: The address of the issuer's token endpoint.
        sign_out: The issuer's address for signing out.
        scope: The scopes to request, separated by spaces.
        domain: A domain of the desk and the API; None for the address that API Gateway chooses.
    """

    client_id: str
    authorize: str
    token: str
    sign_out: str
    scope: str
    domain: Domain | None


class Arguments(TypedDict, total=False):
    """The settings as keyword arguments of the construct. The keys of nested settings are spelt as in the schema."""

    production: bool
    runtime: str
    architecture: str
    log_level: str
    log_retention_days: int
    alarm_email: str | None
    monitoring: str
    tracing: bool
    fifo_queue: bool
    lanes: int
    hold_seconds: int | None
    allow_endless_holds: bool
    hold_grace_seconds: int
    sweep_minutes: int
    locations: Sequence[str]
    buyers_default: str
    currency: str | None
    table_key: str | None
    warm_throughput: Mapping[str, Mapping[str, int]]
    functions: Mapping[str, Mapping[str, int]]
    queues: Mapping[str, Mapping[str, int]]
    api: bool
    api_limits: Mapping[str, int]
    jwt: Mapping[str, Any] | None
    roles: Mapping[str, Any] | None
    desk: Mapping[str, Any] | None
    cors: Sequence[str]
    customers_may_set: Sequence[str]
    customers_may_amend: bool
    amend_paid: bool
    show_stock: str
    stock_events: bool
    movements: bool


@dataclass(frozen=True)
class Settings:
    """All settings of the stack, described in the schema.

    Attributes:
        stage: Name of the stage: 1 to 20 lowercase letters, digits and hyphens.
        is_production: The setting `production`.
        sources: The source of each value, `default`, `settings` or `stages.<stage>`, by the setting's path.
        values: The value of each setting, by its path.
    """

    stage: str
    is_production: bool
    runtime: str
    architecture: str
    log_level: str
    log_retention_days: int
    functions: Mapping[str, FunctionSettings]
    queues: Mapping[str, QueueSettings]
    fifo_queue: bool
    lanes: int
    warm_throughput: Mapping[str, WarmThroughput]
    hold_seconds: int | None
    allow_endless_holds: bool
    hold_grace_seconds: int
    sweep_minutes: int
    locations: tuple[str, ...]
    buyers_default: str
    currency: str | None
    table_key: str | None
    alarm_email: str | None
    monitoring: str
    tracing: bool
    api: bool
    api_limits: ApiLimits
    jwt: Jwt | None
    roles: Mapping[str, Any] | None
    desk: Desk | None
    cors: tuple[str, ...]
    customers_may_set: tuple[str, ...]
    customers_may_amend: bool
    amend_paid: bool
    show_stock: str
    stock_events: bool
    movements: bool
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def stack_name(self) -> str:
        """The name of the CloudFormation stack of this stage."""
        return stack_name(self.stage)

    @property
    def service_name(self) -> str:
        """The value of the dimension `service` of the service's own metrics."""
        return service_name(self.stage)

    @property
    def api_lanes(self) -> int:
        """The number of lanes for the API's processes, in addition to `lanes`."""
        return min(_MOST_API_LANES, _MOST_LANES - self.lanes) if self.api and self.lanes else 0

    @classmethod
    def from_context(
        cls, stage: object, settings: object = None, stages: object = None, overrides: object = None
    ) -> Settings:
        """Read the settings from the CDK context.

        Args:
            stage: Name of the stage.
            settings: The object `settings` of cdk.json, which replaces defaults for all stages.
            stages: The object `stages` of cdk.json, which replaces values for single stages.
            overrides: Values for this deployment only.

        Raises:
            SettingsError: A setting is unknown or out of range.
        """
        if not isinstance(stage, str) or not STAGE.fullmatch(stage):
            raise SettingsError(
                f"stage is {json.dumps(stage)}; it must be 1 to 20 lowercase letters, digits or hyphens (-c stage=dev)"
            )
        return cls._of(stage, *_choose(stage, settings, stages, overrides))

    @classmethod
    def from_arguments(cls, name: str, arguments: Arguments) -> Settings:
        """Read the settings that an app passes to the construct.

        Args:
            name: The name of the service, which becomes the name of its stage.
            arguments: Settings that differ from the defaults.

        Raises:
            SettingsError: The name or a setting is unknown or out of range.
        """
        return cls.from_context(
            name, {_setting(field): value for field, value in arguments.items()}
        )

    @classmethod
    def _of(cls, stage: str, chosen: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
        fields = {_field(name): value for name, value in chosen.items()} | {
            "functions": {n: FunctionSettings(**each) for n, each in chosen["functions"].items()},
            "queues": {n: QueueSettings(**each) for n, each in chosen["queues"].items()},
            "warm_throughput": {
                n: WarmThroughput(**each) for n, each in chosen["warmThroughput"].items()
            },
            "api_limits": ApiLimits(**chosen["apiLimits"]),
            "jwt": chosen["jwt"] and _jwt(**chosen["jwt"]),
            "desk": chosen["desk"] and _desk(chosen["desk"]),
            "cors": tuple(chosen["cors"]),
            "customers_may_set": tuple(chosen["customersMaySet"]),
            "locations": tuple(chosen["locations"]),
        }
        return cls(stage=stage, sources=sources, values=dict(_leaves(chosen)), **fields)


def _field(setting: str) -> str:
    """Convert a setting's name to the name of its field in `Settings`."""
    if setting == "production":
        return "is_production"
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", setting)


def _setting(argument: str) -> str:
    """Convert the name of the construct's argument to the name of its setting."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), argument)


def _jwt(
    *,
    issuer: str,
    audience: Iterable[str],
    userIdClaim: str,  # noqa: N803 - spelt as in cdk.json
    operatorsClaim: Mapping[str, str] | None = None,  # noqa: N803
) -> Jwt:
    claim = operatorsClaim and (operatorsClaim["name"], operatorsClaim["value"])
    return Jwt(issuer, tuple(audience), userIdClaim, claim or None)


def _desk(chosen: Mapping[str, Any]) -> Desk:
    fields = {_field(name): value for name, value in chosen.items()}
    return Desk(**fields | {"domain": chosen["domain"] and Domain(**chosen["domain"])})


def check_names(config: Mapping[str, Any], context: Mapping[str, Any]) -> None:
    """Check that all names in cdk.json and in `-c NAME=VALUE` are known.

    Args:
        config: The content of cdk.json.
        context: The `context` of cdk.json, and values from the command line. Names that are not plain words are the CDK's
            own, and are not checked.

    Raises:
        SettingsError: A name is unknown or in the wrong place.
    """
    for name in config.keys() - {"context"}:
        if near := get_close_matches(name, (*_CONTEXT, "context"), 1, 0.8):
            place = near[0] if near[0] == "context" else f"context.{near[0]}"
            raise SettingsError(
                f"cdk.json has {name} at the top level, where it has no effect; did you mean {place}?"
            )
    if isinstance(_object("context", config.get("context", {})).get("stage"), Mapping):
        raise SettingsError("context.stage in cdk.json is an object; did you mean context.stages?")
    for name in context:
        if name.isalpha() and name not in _CONTEXT:
            raise SettingsError(
                f"context.{name} (in cdk.json, or -c {name}=) is unknown; {_hint(name, _CONTEXT)}"
            )


def _hint(unknown: str, known: Collection[str]) -> str:
    near = get_close_matches(unknown, known, 1)
    return f"did you mean {near[0]}?" if near else f"the known names are {', '.join(sorted(known))}"


def _choose(
    stage: str, settings: object, stages: object, overrides: object
) -> tuple[dict[str, Any], dict[str, str]]:
    """Determine the value of each setting of a stage, and where it comes from."""
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = {DEFAULT: _defaults(SCHEMA), "settings": {} if settings is None else settings}
    for name, of_stage in _object("stages", {} if stages is None else stages).items():
        if not STAGE.fullmatch(name):
            raise SettingsError(f"stages.{name} is not a valid stage name")
        if name == stage:
            layers[f"stages.{name}"] = of_stage
    layers[_OVERRIDES] = {} if overrides is None else overrides
    for source, layer in layers.items():
        _merge(chosen, _object(source, layer), source, sources)
    try:
        _validate(chosen)
    except JsonSchemaValueException as error:
        raise _violation(error, sources) from None
    _fill_in(chosen, stage, sources)
    return chosen, sources


def _defaults(schema: Mapping[str, Any]) -> Any:
    """Collect the default values of a schema's properties."""
    return {
        name: part["default"] if "default" in part else _defaults(part)
        for name, part in schema["properties"].items()
        if "default" in part or "properties" in part
    }


def _merge(
    into: dict[str, Any],
    layer: Mapping[str, Any],
    source: str,
    sources: dict[str, str],
    at: str = "",
) -> None:
    """Override values with those of the next layer of settings, and record where they come from."""
    for name, value in layer.items():
        path = f"{at}{name}"
        if isinstance(value, Mapping):
            if not isinstance(into.get(name), dict):
                into[name] = {}
            _merge(into[name], value, source, sources, f"{path}.")
        else:
            into[name] = deepcopy(value)
            sources[path] = source


def _fill_in(chosen: dict[str, Any], stage: str, sources: dict[str, str]) -> None:
    """Compute defaults that depend on other settings, and check combinations of settings."""
    queues = chosen["queues"]
    if not chosen["fifoQueue"]:
        del queues["OrderQueueFifo"]
    if not chosen["api"]:
        del queues["OrderQueueExpress"]
    # Workers without a lane of their own would wait for others' lanes.
    workers = sum(queues[n]["maximumConcurrency"] for n in queues if n.startswith("OrderQueue"))
    chosen.setdefault("production", stage == "prod")
    chosen.setdefault("lanes", min(workers, _MOST_LANES - _MOST_API_LANES))
    _check_windows(chosen, sources)
    _check_holds(chosen, sources)
    _check_currency(chosen["currency"], sources)
    _check_roles(chosen, sources)
    _check_desk(chosen, sources)
    if chosen["cors"] and chosen["jwt"] is None:
        raise SettingsError(
            f"{_named('cors', sources)} requires the setting jwt: without tokens, a web page would have to sign its requests "
            "with AWS keys, and anyone could read these keys"
        )
    for path, _ in _leaves(chosen):
        sources.setdefault(path, DEFAULT)


def _check_windows(chosen: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse a large batch without a window, or a window so long that an order could expire although it was paid in time."""
    for name, queue in chosen["queues"].items():
        if queue["batchSize"] > 10 and queue.get("batchWindowSeconds") == 0:
            path = f"queues.{name}.batchWindowSeconds"
            raise SettingsError(
                f"{_named(path, sources)} is 0; it must be a whole number from 1 to 300 if batchSize is above 10"
            )
    # The embedded AWS has no windows, and a different grace.
    if sources.get("holdGraceSeconds") == _OVERRIDES:
        return
    path = "queues.OrderCommandQueue.batchWindowSeconds"
    window = chosen["queues"]["OrderCommandQueue"]["batchWindowSeconds"]
    grace = chosen["holdGraceSeconds"]
    least = window + _WINDOW_ENDS_BEFORE_GRACE_SECONDS
    if window and least > grace:
        raise SettingsError(
            f"{_named(path, sources)} is {window}, but holdGraceSeconds is {grace}: an order could expire while its "
            f"confirmation waits for a batch. Lower the window to {max(0, grace - _WINDOW_ENDS_BEFORE_GRACE_SECONDS)}, or "
            f"raise holdGraceSeconds to {least}"
        )


def _check_holds(chosen: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse an API for customers whose unpaid orders keep their stock forever, unless the shop wants this."""
    is_endless = chosen["holdSeconds"] is None and not chosen["allowEndlessHolds"]
    if is_endless and chosen["jwt"] is not None:
        raise SettingsError(
            f"{_named('holdSeconds', sources)} is null, but with the setting jwt, customers place orders, and those who never "
            "pay would keep their stock forever. Set holdSeconds to a whole number from 60 to 604800, or allowEndlessHolds "
            "to true"
        )


def _check_currency(code: str | None, sources: Mapping[str, str]) -> None:
    """Refuse a code that ISO 4217 does not list."""
    if code is not None and code not in DIGITS:
        hint = f"; did you mean {code.upper()}?" if code.upper() in DIGITS else ""
        raise SettingsError(
            f"{_named('currency', sources)} is {json.dumps(code)}; it must be "
            f"{must_be(SCHEMA['properties']['currency'])}{hint}"
        )


def _check_roles(chosen: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse roles without tokens, and roles that do not fit into the environment variables of a function."""
    roles = chosen["roles"]
    if roles is None:
        return
    if chosen["jwt"] is None:
        raise SettingsError(
            f"{_named('roles', sources)} requires the setting jwt: tokens name roles"
        )
    size = len(json.dumps(roles))
    if size > _MOST_BYTES_OF_ROLES:
        raise SettingsError(
            f"{_named('roles', sources)} has {size:,} characters as JSON; it may have at most {_MOST_BYTES_OF_ROLES:,}. Grant "
            "fewer roles, or use shorter names"
        )


def _check_desk(chosen: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse a desk whose users could not sign in, or could do nothing there."""
    desk, jwt = chosen["desk"], chosen["jwt"]
    if desk is None:
        return
    named = _named("desk", sources)
    if jwt is None or not chosen["api"]:
        raise SettingsError(
            f"{named} requires the settings api and jwt: the desk uses the API with its users' tokens"
        )
    if chosen["roles"] is None and "operatorsClaim" not in jwt:
        raise SettingsError(
            f"{named} requires the setting roles or jwt.operatorsClaim: without them, all tokens are customers', who may not "
            "use the desk"
        )
    if desk["clientId"] not in jwt["audience"]:
        raise SettingsError(
            f"{named}.clientId is {json.dumps(desk['clientId'])}; it must be in jwt.audience, or the API would refuse the "
            "desk's tokens"
        )


def _leaves(chosen: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in chosen.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value


def _object(source: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{source} in cdk.json is {json.dumps(value)}; it must be an object")
    return value


def _named(path: str, sources: Mapping[str, str]) -> str:
    """Return the path of a setting in cdk.json, below `settings` or below its stage."""
    name = path.split("[", maxsplit=1)[0]
    inner = (of for known, of in sources.items() if known.startswith(f"{name}."))
    source = sources.get(name) or next(inner, DEFAULT)
    return f"settings.{path}" if source == DEFAULT else f"{source}.{path}"


def _violation(error: JsonSchemaValueException, sources: Mapping[str, str]) -> SettingsError:
    path = (error.name or "").removeprefix("data").removeprefix(".")
    definition = error.definition
    if error.rule == "required":
        missing = next(name for name in definition["required"] if name not in error.value)
        return SettingsError(f"{_named(path, sources)}.{missing} is missing")
    if error.rule == "additionalProperties":
        known = definition["properties"]
        unknown = next(name for name in error.value if name not in known)
        full = f"{path}.{unknown}".removeprefix(".")
        return SettingsError(f"{_named(full, sources)} is unknown; {_hint(unknown, known)}")
    return SettingsError(
        f"{_named(path, sources)} is {json.dumps(error.value)}; it must be {must_be(definition)}"
    )


def must_be(definition: Mapping[str, Any]) -> str:
    """Describe the values that a setting allows."""
    kinds = definition.get("type", ())
    kind, *_ = [kinds] if isinstance(kinds, str) else [*kinds, ""]
    words = {
        "integer": "a whole number from {minimum} to {maximum}",
        "boolean": "true or false",
        "object": "an object",
        "array": "a list",
    }
    if "enum" in definition:
        must = f"one of {', '.join(map(str, definition['enum']))}"
    else:
        must = definition.get("must") or words[kind].format_map(definition)
    return f"{must}, or null" if "null" in kinds else must
