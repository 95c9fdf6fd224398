"""DynamoDB's expressions: conditions, updates, projections and key conditions, parsed once and evaluated on items.

An item is a map from attribute names to values in their wire format: `{"stockCount": {"N": "3"}}`. Values are never
changed in place, so items may share them.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context
from functools import lru_cache
from pathlib import Path as File
from typing import Any

from testing.simulated_aws.values import (
    Item,
    ServiceError,
    Value,
    checked,
    invalid,
    number,
    size_of,
    text_of,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<sign><>|<=|>=|[=<>(),.\[\]+-])|(?P<name>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<word>[A-Za-z][A-Za-z0-9_]*)|(?P<digits>[0-9]+))"
)
_RESERVED = frozenset(File(__file__).with_name("reserved_words.txt").read_text("ascii").split())
_KEYWORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"}
_TYPES = {"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"}
_ORDERED = {"S", "N", "B"}
# Holds every digit of the sum of any two numbers. Python's own context has only 28, DynamoDB stores 38.
_ANY_SUM = Context(prec=300)

Steps = tuple[str | int, ...]
"""A resolved path: attribute names and list indexes."""


class UpdateError(Exception):
    """An update that does not fit the item. Parsing cannot detect this error of the request."""


@dataclass(slots=True)
class Scope:
    """The context in which an expression is evaluated.

    Attributes:
        item: The item; empty if there is none.
        names: `#name` -> attribute name.
        values: `:name` -> value, normalised.
    """

    item: Item
    names: Mapping[str, str]
    values: Mapping[str, Value]


# ---------------------------------------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True)
class Path:
    """A document path: `a.#b[0]`."""

    steps: Steps

    def resolve(self, scope: Scope) -> Steps:
        """Replace the `#names`."""
        return tuple(
            scope.names[step] if isinstance(step, str) and step[0] == "#" else step
            for step in self.steps
        )

    def value(self, scope: Scope) -> Value | None:
        return value_at(scope.item, self.resolve(scope))


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`:value`."""

    name: str

    def value(self, scope: Scope) -> Value | None:
        return scope.values[self.name]


@dataclass(frozen=True, slots=True)
class Size:
    """`size(path)`."""

    path: Path

    def value(self, scope: Scope) -> Value | None:
        found = self.path.value(scope)
        if found is None:
            return None
        kind, content = next(iter(found.items()))
        if kind == "S":
            return {"N": str(len(content.encode("utf-8", "surrogatepass")))}
        if kind == "B":
            return {"N": str(size_of(found))}
        return {"N": str(len(content))} if kind in {"L", "M", "SS", "NS", "BS"} else None


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """`if_not_exists(path, operand)`."""

    path: Path
    default: Operand

    def value(self, scope: Scope) -> Value | None:
        found = self.path.value(scope)
        return found if found is not None else self.default.value(scope)


@dataclass(frozen=True, slots=True)
class ListAppend:
    """`list_append(operand, operand)`."""

    first: Operand
    second: Operand

    def value(self, scope: Scope) -> Value | None:
        joined: list[Any] = []
        for operand in (self.first, self.second):
            found = _required(operand, scope)
            if "L" not in found:
                raise UpdateError("An operand in the update expression has an incorrect data type")
            joined += found["L"]
        return {"L": joined}


@dataclass(frozen=True, slots=True)
class Sum:
    """`operand + operand` or `operand - operand`."""

    first: Operand
    sign: str
    second: Operand

    def value(self, scope: Scope) -> Value | None:
        first, second = _required(self.first, scope), _required(self.second, scope)
        if "N" not in first or "N" not in second:
            raise UpdateError("An operand in the update expression has an incorrect data type")
        return _sum(first, second if self.sign == "+" else _negated(second))


Operand = Path | Placeholder | Size | IfNotExists | ListAppend | Sum


def _required(operand: Operand, scope: Scope) -> Value:
    found = operand.value(scope)
    if found is None:
        raise UpdateError(
            "The provided expression refers to an attribute that does not exist in the item"
        )
    return found


def _sum(first: Value, second: Value) -> Value:
    try:
        return {"N": text_of(_ANY_SUM.add(number(first), number(second)))}
    except ServiceError as error:
        raise UpdateError(error.message) from error


def _negated(value: Value) -> Value:
    return {"N": str(number(value).copy_negate())}


# ---------------------------------------------------------------------------------------------- conditions


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operand = operand` and the like."""

    left: Operand
    sign: str
    right: Operand

    def holds(self, scope: Scope) -> bool:
        return _compare(self.left.value(scope), self.sign, self.right.value(scope))


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN operand AND operand`."""

    operand: Operand
    low: Operand
    high: Operand

    def holds(self, scope: Scope) -> bool:
        value = self.operand.value(scope)
        return _compare(value, ">=", self.low.value(scope)) and _compare(
            value, "<=", self.high.value(scope)
        )


@dataclass(frozen=True, slots=True)
class In:
    """`operand IN (operand, ...)`."""

    operand: Operand
    choices: tuple[Operand, ...]

    def holds(self, scope: Scope) -> bool:
        value = self.operand.value(scope)
        return any(_compare(value, "=", choice.value(scope)) for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Function:
    """`attribute_exists(path)`, `begins_with(path, operand)` and the like."""

    name: str
    path: Path
    argument: Operand | None

    def holds(self, scope: Scope) -> bool:
        found = self.path.value(scope)
        if self.name == "attribute_exists":
            return found is not None
        if self.name == "attribute_not_exists":
            return found is None
        argument = self.argument.value(scope) if self.argument is not None else None
        if found is None or argument is None:
            return False
        kind, content = next(iter(found.items()))
        wanted_kind, wanted = next(iter(argument.items()))
        if self.name == "attribute_type":
            return bool(kind == wanted)
        if self.name == "begins_with":
            is_text = kind == wanted_kind and kind in {"S", "B"}
            return is_text and _bytes(found).startswith(_bytes(argument))
        if kind == "L":
            return argument in content
        if kind in {"S", "SS", "NS", "BS"} and wanted_kind == kind[0]:
            return wanted in content
        return False


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT condition`."""

    condition: Condition

    def holds(self, scope: Scope) -> bool:
        return not self.condition.holds(scope)


@dataclass(frozen=True, slots=True)
class Both:
    """`condition AND condition`."""

    left: Condition
    right: Condition

    def holds(self, scope: Scope) -> bool:
        return self.left.holds(scope) and self.right.holds(scope)


@dataclass(frozen=True, slots=True)
class Either:
    """`condition OR condition`."""

    left: Condition
    right: Condition

    def holds(self, scope: Scope) -> bool:
        return self.left.holds(scope) or self.right.holds(scope)


Condition = Comparison | Between | In | Function | Not | Both | Either


def _compare(left: Value | None, sign: str, right: Value | None) -> bool:
    if sign == "<>":
        # The only comparison that holds for a missing attribute.
        return left != right
    if left is None or right is None:
        return False
    if sign == "=":
        return left == right
    kind = next(iter(left))
    if kind not in _ORDERED or kind not in right:
        return False
    a, b = (number(left), number(right)) if kind == "N" else (_bytes(left), _bytes(right))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]  # type: ignore[operator]


def _bytes(value: Value) -> bytes:
    """The bytes that order strings and binary values: UTF-8, and decoded base64."""
    ((kind, content),) = value.items()
    if kind == "B":
        return base64.b64decode(content)
    return str(content).encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------------------------------------- parsed expressions


@dataclass(frozen=True, slots=True)
class Expression:
    """The common part of all parsed expressions.

    Attributes:
        kind: The request's parameter: `ConditionExpression`, ...
        names: `#names` that it uses.
        values: `:values` that it uses.
        checks: Checks that depend on the types of the values.
    """

    kind: str
    names: frozenset[str]
    values: frozenset[str]
    checks: tuple[Callable[[Mapping[str, Value]], None], ...]

    def check(self, names: Mapping[str, str], values: Mapping[str, Value]) -> None:
        """Check the placeholders.

        Raises:
            ServiceError: ValidationException: one is not defined, or its type does not fit its operator.
        """
        for name in self.names:
            if name not in names:
                raise invalid(
                    f"Invalid {self.kind}: An expression attribute name used in the document path is not defined; "
                    f"attribute name: {name}"
                )
        for name in self.values:
            if name not in values:
                raise invalid(
                    f"Invalid {self.kind}: An expression attribute value used in expression is not defined; "
                    f"attribute value: {name}"
                )
        for check in self.checks:
            check(values)


@dataclass(frozen=True, slots=True)
class ConditionExpression(Expression):
    """A condition, a filter, or a key condition."""

    condition: Condition

    def holds(self, scope: Scope) -> bool:
        """Whether the item meets it."""
        return self.condition.holds(scope)


@dataclass(frozen=True, slots=True)
class Projection(Expression):
    """The paths to return."""

    paths: tuple[Path, ...]

    def apply(self, scope: Scope) -> Item:
        """The projected part of an item."""
        return project(scope.item, [path.resolve(scope) for path in self.paths])


@dataclass(frozen=True, slots=True)
class UpdateExpression(Expression):
    """The changes of an UpdateItem."""

    settings: tuple[tuple[Path, Operand], ...]
    removals: tuple[Path, ...]
    additions: tuple[tuple[Path, Placeholder], ...]
    deletions: tuple[tuple[Path, Placeholder], ...]

    def paths(self, scope: Scope) -> list[Steps]:
        """All paths that it changes.

        Raises:
            ServiceError: ValidationException: two of them overlap.
        """
        paths = [path.resolve(scope) for path, _ in self.settings]
        paths += [path.resolve(scope) for path in self.removals]
        paths += [path.resolve(scope) for path, _ in (*self.additions, *self.deletions)]
        for index, one in enumerate(paths):
            for other in paths[:index]:
                shorter = min(len(one), len(other))
                if one[:shorter] == other[:shorter]:
                    raise invalid(
                        f"Invalid {self.kind}: Two document paths overlap with each other; must remove or rewrite "
                        f"one of these paths; path one: {list(other)}, path two: {list(one)}"
                    )
        return paths

    def apply(self, scope: Scope) -> Item:
        """Compute the item after the update. All operands are read from the item before it.

        Raises:
            UpdateError: It does not fit the item.
        """
        changes: list[tuple[Steps, Value | None]] = [
            (path.resolve(scope), _required(operand, scope)) for path, operand in self.settings
        ]
        for path, placeholder in self.additions:
            changes.append((path.resolve(scope), _added(path.value(scope), placeholder, scope)))
        for path, placeholder in self.deletions:
            found = path.value(scope)
            if found is not None:
                changes.append((path.resolve(scope), _without(found, placeholder.value(scope))))
        changes += [(path.resolve(scope), None) for path in self.removals]
        item = scope.item
        # Remove list elements last and from the end, so that the other indexes stay valid.
        changes.sort(key=lambda change: (change[1] is None, *_last_index(change)))
        for steps, value in changes:
            item = _changed({"M": item}, steps, value)["M"]
        return item


def _last_index(change: tuple[Steps, Value | None]) -> tuple[int]:
    steps, value = change
    last = steps[-1]
    if not isinstance(last, int):
        return (0,)
    return (-last,) if value is None else (last,)


def _added(found: Value | None, placeholder: Placeholder, scope: Scope) -> Value:
    more = scope.values[placeholder.name]
    if found is None:
        return more
    kind = next(iter(more))
    if kind not in found:
        raise UpdateError("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return _sum(found, more)
    return checked({kind: sorted({*found[kind], *more[kind]})})


def _without(found: Value, less: Value | None) -> Value | None:
    kind = next(iter(less or {}))
    if less is None or kind not in found:
        raise UpdateError("An operand in the update expression has an incorrect data type")
    left = [element for element in found[kind] if element not in less[kind]]
    return {kind: left} if left else None


def _changed(container: Value, steps: Steps, value: Value | None) -> Value:
    """Copy a container with a value set at a path, or with the value at the path removed."""
    step, rest = steps[0], steps[1:]
    wrong_path = UpdateError(
        "The document path provided in the update expression is invalid for update"
    )
    if isinstance(step, int):
        if "L" not in container:
            raise wrong_path
        elements = list(container["L"])
        if rest:
            if step >= len(elements):
                raise wrong_path
            elements[step] = _changed(elements[step], rest, value)
        elif value is None:
            del elements[step : step + 1]
        elif step < len(elements):
            elements[step] = value
        else:
            elements.append(value)
        return {"L": elements}
    if "M" not in container:
        raise wrong_path
    attributes = dict(container["M"])
    if rest:
        if step not in attributes:
            raise wrong_path
        attributes[step] = _changed(attributes[step], rest, value)
    elif value is None:
        attributes.pop(step, None)
    else:
        attributes[step] = value
    return {"M": attributes}


def value_at(item: Item, steps: Steps) -> Value | None:
    """The value at a path, or None."""
    value: Value = {"M": item}
    for step in steps:
        if isinstance(step, int):
            elements = value.get("L", ())
            if step >= len(elements):
                return None
            value = elements[step]
        else:
            inner = value.get("M", {}).get(step)
            if inner is None:
                return None
            value = inner
    return value


def project(item: Item, paths: Sequence[Steps]) -> Item:
    """The parts of an item at some paths. Elements of lists close up."""
    tree: dict[str | int, Any] = {}
    for steps in paths:
        if value_at(item, steps) is None:
            continue
        branch = tree
        for step in steps[:-1]:
            branch = branch.setdefault(step, {})
        branch[steps[-1]] = None
    selected: Item = _selected({"M": item}, tree)["M"]
    return selected


def _selected(value: Value, tree: dict[str | int, Any] | None) -> Value:
    if tree is None:
        return value
    if "L" in value:
        indexes = sorted(step for step in tree if isinstance(step, int))
        return {"L": [_selected(value["L"][index], tree[index]) for index in indexes]}
    return {"M": {str(name): _selected(value["M"][name], tree[name]) for name in tree}}


# ---------------------------------------------------------------------------------------------- parsing


@lru_cache(maxsize=4096)
def parse_condition(text: str, kind: str = "ConditionExpression") -> ConditionExpression:
    """Parse a condition, a filter or a key condition.

    Raises:
        ServiceError: ValidationException.
    """
    parser = _Parser(text, kind)
    condition = parser.condition()
    parser.end()
    return ConditionExpression(*parser.used(), condition)


@lru_cache(maxsize=4096)
def parse_update(text: str) -> UpdateExpression:
    """Parse an update.

    Raises:
        ServiceError: ValidationException.
    """
    parser = _Parser(text, "UpdateExpression")
    clauses: dict[str, list[Any]] = {"SET": [], "REMOVE": [], "ADD": [], "DELETE": []}
    seen: set[str] = set()
    while not seen or not parser.is_over():
        clause = parser.word().upper()
        if clause not in clauses:
            raise parser.wrong(clause)
        if clause in seen:
            raise invalid(
                f'Invalid UpdateExpression: The "{clause}" section can only be used once in an update expression;'
            )
        seen.add(clause)
        while True:
            clauses[clause].append(parser.action(clause))
            if not parser.takes(","):
                break
    return UpdateExpression(
        *parser.used(),
        tuple(clauses["SET"]),
        tuple(clauses["REMOVE"]),
        tuple(clauses["ADD"]),
        tuple(clauses["DELETE"]),
    )


@lru_cache(maxsize=4096)
def parse_projection(text: str) -> Projection:
    """Parse a projection.

    Raises:
        ServiceError: ValidationException.
    """
    parser = _Parser(text, "ProjectionExpression")
    paths = [parser.path()]
    while parser.takes(","):
        paths.append(parser.path())
    parser.end()
    return Projection(*parser.used(), tuple(paths))


@dataclass(slots=True)
class _Parser:
    """Recursive descent over the tokens of one expression."""

    text: str
    kind: str
    tokens: list[str] = field(default_factory=list)
    position: int = 0
    names: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    checks: list[Callable[[Mapping[str, Value]], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        place, text = 0, self.text.rstrip()
        if not text:
            raise invalid(f"Invalid {self.kind}: The expression can not be empty;")
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.wrong(text[place:].lstrip()[:1])
            self.tokens.append(match[0].strip())
            place = match.end()

    def used(
        self,
    ) -> tuple[
        str, frozenset[str], frozenset[str], tuple[Callable[[Mapping[str, Value]], None], ...]
    ]:
        return self.kind, frozenset(self.names), frozenset(self.values), tuple(self.checks)

    def wrong(self, token: str) -> ServiceError:
        near = " ".join(self.tokens[max(0, self.position - 2) : self.position + 1])
        return invalid(f'Invalid {self.kind}: Syntax error; token: "{token}", near: "{near}"')

    def is_over(self) -> bool:
        return self.position >= len(self.tokens)

    def end(self) -> None:
        if not self.is_over():
            raise self.wrong(self.tokens[self.position])

    def peek(self) -> str:
        return self.tokens[self.position] if not self.is_over() else "<EOF>"

    def next(self) -> str:
        token = self.peek()
        if token == "<EOF>":  # noqa: S105 - AWS's name for the end
            raise self.wrong(token)
        self.position += 1
        return token

    def takes(self, wanted: str) -> bool:
        """Consume the next token if it is this one, ignoring case. Returns whether it was."""
        if self.peek().upper() == wanted:
            self.position += 1
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.takes(wanted):
            raise self.wrong(self.peek())

    def word(self) -> str:
        token = self.next()
        if not token[0].isalpha():
            raise self.wrong(token)
        return token

    # ------------------------------------------------------------------ operands

    def path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while True:
            if self.takes("."):
                steps.append(self._name())
            elif self.takes("["):
                index = self.next()
                if not index.isdecimal():
                    raise self.wrong(index)
                steps.append(int(index))
                self.expect("]")
            else:
                return Path(tuple(steps))

    def _name(self) -> str:
        token = self.next()
        if token[0] == "#":
            self.names.add(token)
            return token
        if not token[0].isalpha():
            raise self.wrong(token)
        if token.upper() in _RESERVED:
            raise invalid(
                f"Invalid {self.kind}: Attribute name is a reserved keyword; reserved keyword: {token}"
            )
        return token

    def placeholder(self) -> Placeholder:
        token = self.next()
        if token[0] != ":":
            raise self.wrong(token)
        self.values.add(token)
        return Placeholder(token)

    def operand(self) -> Operand:
        """Parse an operand of a condition."""
        if self.peek()[0] == ":":
            return self.placeholder()
        if self.peek() == "size" and self._calls():
            self.position += 2
            size = Size(self._path_of("size"))
            self.expect(")")
            return size
        return self.path()

    def _calls(self) -> bool:
        return self.tokens[self.position + 1 : self.position + 2] == ["("]

    def _path_of(self, function: str) -> Path:
        if self.peek()[0] == ":":
            raise invalid(
                f"Invalid {self.kind}: Operator or function requires a document path; "
                f"operator or function: {function}"
            )
        return self.path()

    # ------------------------------------------------------------------ conditions

    def condition(self) -> Condition:
        left = self._conjunction()
        while self.takes("OR"):
            left = Either(left, self._conjunction())
        return left

    def _conjunction(self) -> Condition:
        left = self._negation()
        while self.takes("AND"):
            left = Both(left, self._negation())
        return left

    def _negation(self) -> Condition:
        return Not(self._negation()) if self.takes("NOT") else self._simple()

    def _simple(self) -> Condition:
        if self.takes("("):
            start = self.position
            inner = self.condition()
            self.expect(")")
            if self.tokens[start] == "(" and self._closing(start) == self.position - 2:
                raise invalid(f"Invalid {self.kind}: The expression has redundant parentheses;")
            return inner
        if self.peek()[0].isalpha() and self._calls() and self.peek() != "size":
            return self._function()
        left = self.operand()
        sign = self.next().upper()
        if sign in {"=", "<>", "<", "<=", ">", ">="}:
            right = self.operand()
            if sign not in {"=", "<>"}:
                self._must_be_ordered(sign, left, right)
            return Comparison(left, sign, right)
        if sign == "BETWEEN":
            low = self.operand()
            self.expect("AND")
            between = Between(left, low, self.operand())
            self._must_be_ordered(sign, left, low, between.high)
            self._must_be_in_order(low, between.high)
            return between
        if sign == "IN":
            self.expect("(")
            choices = [self.operand()]
            while self.takes(","):
                choices.append(self.operand())
            self.expect(")")
            return In(left, tuple(choices))
        raise self.wrong(sign)

    def _closing(self, opening: int) -> int:
        """Find the index of the matching closing parenthesis."""
        depth = 0
        for index in range(opening, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[index], 0)
            if depth == 0:
                return index
        raise self.wrong("<EOF>")

    def _function(self) -> Condition:
        name = self.next()
        arguments = {
            "attribute_exists": 1,
            "attribute_not_exists": 1,
            "attribute_type": 2,
            "begins_with": 2,
            "contains": 2,
        }
        if name not in arguments:
            raise invalid(f"Invalid {self.kind}: Invalid function name; function: {name}")
        self.expect("(")
        path = self._path_of(name)
        argument: Operand | None = None
        if arguments[name] == 2:
            self.expect(",")
            argument = self.operand()
        self.expect(")")
        if isinstance(argument, Placeholder):
            if name == "attribute_type":
                self.checks.append(_must_be_a_type(self.kind, argument.name))
            elif name == "begins_with":
                self.checks.append(_must_be(self.kind, name, argument.name, {"S", "B"}))
        return Function(name, path, argument)

    def _must_be_ordered(self, sign: str, *operands: Operand) -> None:
        for operand in operands:
            if isinstance(operand, Placeholder):
                self.checks.append(_must_be(self.kind, sign, operand.name, _ORDERED))

    def _must_be_in_order(self, low: Operand, high: Operand) -> None:
        kind = self.kind
        if isinstance(low, Placeholder) and isinstance(high, Placeholder):

            def check(values: Mapping[str, Value]) -> None:
                if not _compare(values[low.name], "<=", values[high.name]):
                    raise invalid(
                        f"Invalid {kind}: The BETWEEN operator requires upper bound to be greater than or equal to "
                        f"lower bound; lower bound operand: {values[low.name]}, upper bound operand: "
                        f"{values[high.name]}"
                    )

            self.checks.append(check)

    # ------------------------------------------------------------------ updates

    def action(self, clause: str) -> Any:
        path = self.path()
        if clause == "REMOVE":
            return path
        if clause == "SET":
            self.expect("=")
            first = self._settable()
            if self.peek() in {"+", "-"}:
                sign = self.next()
                return path, Sum(first, sign, self._settable())
            return path, first
        operand = self.placeholder()
        allowed = {"SS", "NS", "BS"} | ({"N"} if clause == "ADD" else set())
        self.checks.append(_must_be(self.kind, clause, operand.name, allowed))
        return path, operand

    def _settable(self) -> Operand:
        if self.peek()[0] == ":":
            return self.placeholder()
        if not (self.peek()[0].isalpha() and self._calls()):
            return self.path()
        name = self.next()
        self.expect("(")
        operand: Operand
        if name == "if_not_exists":
            path = self._path_of(name)
            self.expect(",")
            operand = IfNotExists(path, self._settable())
        elif name == "list_append":
            first = self._settable()
            self.expect(",")
            operand = ListAppend(first, self._settable())
        else:
            raise invalid(f"Invalid {self.kind}: Invalid function name; function: {name}")
        self.expect(")")
        return operand


def _must_be(
    kind: str, operator: str, name: str, allowed: set[str]
) -> Callable[[Mapping[str, Value]], None]:
    def check(values: Mapping[str, Value]) -> None:
        found = next(iter(values[name]))
        if found not in allowed:
            raise invalid(
                f"Invalid {kind}: Incorrect operand type for operator or function; "
                f"operator or function: {operator}, operand type: {found}"
            )

    return check


def _must_be_a_type(kind: str, name: str) -> Callable[[Mapping[str, Value]], None]:
    def check(values: Mapping[str, Value]) -> None:
        if values[name].get("S") not in _TYPES:
            raise invalid(
                f"Invalid {kind}: Invalid attribute type name found; type: {values[name]}"
            )

    return check
