"""DynamoDB's expressions: conditions, updates, projections and key conditions, parsed once and evaluated on items.

An item is a map from attribute names to values in their wire format: `{"stockCount": {"N": "3"}}`. Values are never
changed in place, so items may share them.

Supports only expressions that this repository sends: on attributes and entries of maps, with `SET`, `REMOVE`, `ADD` of numbers and
sets of strings, `DELETE` from sets of strings, and comparisons of their `size`. Others raise NotImplementedError, since
DynamoDB would accept them.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Context
from functools import lru_cache, partial
from pathlib import Path as File
from typing import NamedTuple, TypeVar

from testing.aws.values import (
    Item,
    Value,
    invalid,
    number,
    text_of,
)

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),.\[\]+-]|[#:][A-Za-z0-9_]+|[A-Za-z][A-Za-z0-9_]*|[0-9]+)")
_RESERVED = frozenset(File(__file__).with_name("reserved_words.txt").read_text("ascii").split())
_TYPES = {"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"}
_ORDERED = {"S", "N", "B"}
_FUNCTIONS = {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with"}
_NOT_SIMULATED = {
    *(".", "[", "IN"),
    *("CONTAINS", "IF_NOT_EXISTS", "LIST_APPEND"),
}
# Precise enough for the sum of any two numbers. DynamoDB stores 38 digits, and Python's own context has only 28.
_ANY_SUM = Context(prec=300)

T = TypeVar("T")

Operand = str
"""A path (`name`, `#name` or `#name.#entry`), or a `:value`."""


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

    def path(self, operand: Operand) -> tuple[str, ...]:
        """The name of an attribute, and of an entry if the path has one, with aliases resolved."""
        return tuple(self.names[part] if part[0] == "#" else part for part in operand.split("."))

    def attribute(self, operand: Operand) -> str:
        """The name of the attribute of a path."""
        return self.path(operand)[0]

    def value(self, operand: Operand) -> Value | None:
        """The value of an operand; None if the item lacks it."""
        if operand[0] == ":":
            return self.values[operand]
        name, *entries = self.path(operand)
        found = self.item.get(name)
        for entry in entries:
            found = found.get("M", {}).get(entry) if found is not None else None
        return found


# ---------------------------------------------------------------------------------------------- conditions


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operand = operand` and the like."""

    left: Operand
    sign: str
    right: Operand

    def holds(self, scope: Scope) -> bool:
        return _compare(scope.value(self.left), self.sign, scope.value(self.right))


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN operand AND operand`, which includes both limits."""

    operand: Operand
    least: Operand
    most: Operand

    def check(self, scope: Scope) -> None:
        """Check the limits, if both are `:values`.

        Raises:
            ServiceError: ValidationException.
        """
        least, most = (self.least, self.most)
        if least[0] == most[0] == ":" and not _compare(scope.value(least), "<=", scope.value(most)):
            raise invalid(
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound"
            )

    def holds(self, scope: Scope) -> bool:
        self.check(scope)
        found = scope.value(self.operand)
        return _compare(found, ">=", scope.value(self.least)) and _compare(
            found, "<=", scope.value(self.most)
        )


@dataclass(frozen=True, slots=True)
class Function:
    """`attribute_exists(name)`, `attribute_type(name, :type)` and the like. `begins_with` is for strings."""

    name: str
    attribute: Operand
    argument: Operand | None = None

    def holds(self, scope: Scope) -> bool:
        found = scope.value(self.attribute)
        if self.argument is not None:
            wanted = (scope.value(self.argument) or {}).get("S")
            if self.name == "begins_with":
                return found is not None and "S" in found and found["S"].startswith(wanted)
            return found is not None and wanted in found
        return (found is not None) == (self.name == "attribute_exists")


@dataclass(frozen=True, slots=True)
class Size:
    """`size(name) < :value` and the like, for sets of strings."""

    attribute: Operand
    sign: str
    right: Operand

    def holds(self, scope: Scope) -> bool:
        found = scope.value(self.attribute)
        if found is not None and "SS" not in found:
            raise NotImplementedError(
                f"the simulated DynamoDB computes size() only of string sets, not of {found}"
            )
        size = None if found is None else {"N": str(len(found["SS"]))}
        return _compare(size, self.sign, scope.value(self.right))


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


Condition = Comparison | Between | Function | Size | Not | Both | Either


def _compare(left: Value | None, sign: str, right: Value | None) -> bool:
    if sign == "<>":
        # This is the only comparison that is true for a missing attribute.
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
    """The bytes by which strings and binary values are sorted: UTF-8, or decoded base64."""
    ((kind, content),) = value.items()
    if kind == "B":
        return base64.b64decode(content)
    return str(content).encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------------------------------------- parsed expressions


class Typed(NamedTuple):
    """A `:value` whose type has to fit its operator or function."""

    operator: str
    value: Operand


@dataclass(frozen=True, slots=True)
class Expression:
    """The common part of all parsed expressions.

    Attributes:
        kind: The request's parameter: `ConditionExpression`, ...
        names: `#names` that it uses.
        values: `:values` that it uses.
        typed: Its values whose type matters.
    """

    kind: str
    names: frozenset[str]
    values: frozenset[str]
    typed: tuple[Typed, ...]

    def check(self, names: Mapping[str, str], values: Mapping[str, Value]) -> None:
        """Check the placeholders.

        Raises:
            ServiceError: ValidationException: a placeholder is not defined, or its type does not fit its operator.
        """
        for what, used, defined in (("name", self.names, names), ("value", self.values, values)):
            for missing in used - defined.keys():
                raise invalid(
                    f"Invalid {self.kind}: An expression attribute {what} used in expression is not defined; "
                    f"attribute {what}: {missing}"
                )
        for operator, name in self.typed:
            ((kind, content),) = values[name].items()
            if operator == "attribute_type":
                fits = kind == "S" and content in _TYPES
            elif operator == "DELETE":
                fits = kind == "SS"
            elif operator == "begins_with":
                fits = kind == "S"
            else:
                fits = kind in _ORDERED
            if not fits:
                raise invalid(
                    f"Invalid {self.kind}: Incorrect operand type for operator or function; "
                    f"operator or function: {operator}, operand type: {kind}"
                )


@dataclass(frozen=True, slots=True)
class ConditionExpression(Expression):
    """A condition, a filter, or a key condition."""

    condition: Condition

    def holds(self, scope: Scope) -> bool:
        """Whether the item meets the condition."""
        return self.condition.holds(scope)


@dataclass(frozen=True, slots=True)
class Projection(Expression):
    """The attributes to return."""

    attributes: tuple[Operand, ...]

    def apply(self, scope: Scope) -> Item:
        """The projected part of an item."""
        wanted = map(scope.attribute, self.attributes)
        return {name: scope.item[name] for name in wanted if name in scope.item}


class Assignment(NamedTuple):
    """`attribute = first`, `attribute = first + second` or `attribute = first - second`.

    Attributes:
        attribute: The attribute that is set.
        first: The value, or the first term.
        sign: `+`, `-`, `ADD` or `DELETE`; empty without a second term. For `ADD`, a missing first term is 0 or an
            empty set.
        second: The second term.
    """

    attribute: Operand
    first: Operand
    sign: str = ""
    second: Operand = ""

    def result(self, scope: Scope) -> Value | None:
        """Compute the value; None if the attribute is removed.

        Raises:
            ServiceError: ValidationException: a term is missing or of another type, or DynamoDB cannot store their sum.
        """
        if self.sign in {"ADD", "DELETE"} and "SS" in _required(self.second, scope):
            return self._set(scope)
        if self.sign == "ADD" and scope.value(self.first) is None:
            first: Value = {"N": "0"}
        else:
            first = _required(self.first, scope)
        if not self.sign:
            return first
        second = _required(self.second, scope)
        if "N" not in first or "N" not in second:
            raise invalid("An operand in the update expression has an incorrect data type")
        combine = _ANY_SUM.subtract if self.sign == "-" else _ANY_SUM.add
        return {"N": text_of(combine(number(first), number(second)))}

    def _set(self, scope: Scope) -> Value | None:
        held, given = scope.value(self.first), set(_required(self.second, scope)["SS"])
        if held is not None and "SS" not in held:
            raise invalid("An operand in the update expression has an incorrect data type")
        before = set(held["SS"]) if held is not None else set()
        after = before | given if self.sign == "ADD" else before - given
        return {"SS": sorted(after)} if after else None


def _required(operand: Operand, scope: Scope) -> Value:
    found = scope.value(operand)
    if found is None:
        raise invalid(
            "The provided expression refers to an attribute that does not exist in the item"
        )
    return found


@dataclass(frozen=True, slots=True)
class UpdateExpression(Expression):
    """The changes of an UpdateItem."""

    assignments: tuple[Assignment, ...]
    removals: tuple[Operand, ...]

    def attributes(self, scope: Scope) -> set[str]:
        """The names of all attributes that it changes.

        Raises:
            ServiceError: ValidationException: an attribute is changed twice.
        """
        changed = [assignment.attribute for assignment in self.assignments]
        paths = [scope.path(name) for name in (*changed, *self.removals)]
        if any(
            a == b[: len(a)] for n, a in enumerate(paths) for m, b in enumerate(paths) if n != m
        ):
            raise invalid(f"Invalid {self.kind}: Two document paths overlap with each other")
        return {name for name, *_ in paths}

    def apply(self, scope: Scope) -> Item:
        """Compute the item after the update. All operands are read from the item before the update.

        Raises:
            ServiceError: ValidationException: the update does not fit the item.
        """
        item = dict(scope.item)
        for assignment in self.assignments:
            (name, *entries), value = scope.path(assignment.attribute), assignment.result(scope)
            if entries:
                (entry,) = entries
                if "M" not in item.get(name, {}):
                    raise invalid(
                        "The document path provided in the update expression is invalid for update"
                    )
                item[name] = {"M": {**item[name]["M"], entry: value}}
                continue
            item.pop(name, None)
            item |= {} if value is None else {name: value}
        for name in self.removals:
            item.pop(scope.attribute(name), None)
        return item


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
    assignments: list[Assignment] = []
    removals: list[Operand] = []
    seen: set[str] = set()
    while not seen or not parser.is_over():
        clause = parser.next().upper()
        if clause in seen:
            raise invalid(
                f'Invalid UpdateExpression: The "{clause}" section can only be used once in an update expression;'
            )
        seen.add(clause)
        match clause:
            case "SET":
                assignments += parser.listed(parser.assignment)
            case "ADD" | "DELETE":
                assignments += parser.listed(partial(parser.of_set, clause))
            case "REMOVE":
                removals = parser.listed(parser.part)
            case _:
                raise parser.wrong(clause)
    return UpdateExpression(*parser.used(), tuple(assignments), tuple(removals))


@lru_cache(maxsize=4096)
def parse_projection(text: str) -> Projection:
    """Parse a projection.

    Raises:
        ServiceError: ValidationException.
    """
    parser = _Parser(text, "ProjectionExpression")
    attributes = parser.listed(parser.part)
    parser.end()
    return Projection(*parser.used(), tuple(attributes))


@dataclass(slots=True)
class _Parser:
    """Recursive descent over the tokens of one expression."""

    text: str
    kind: str
    tokens: list[str] = field(default_factory=list)
    position: int = 0
    names: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    typed: list[Typed] = field(default_factory=list)

    def __post_init__(self) -> None:
        place, text = 0, self.text.rstrip()
        if not text:
            raise invalid(f"Invalid {self.kind}: The expression can not be empty;")
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.wrong(text[place:].lstrip()[:1])
            self.tokens.append(match[1])
            place = match.end()

    def used(self) -> tuple[str, frozenset[str], frozenset[str], tuple[Typed, ...]]:
        return self.kind, frozenset(self.names), frozenset(self.values), tuple(self.typed)

    def wrong(self, token: str) -> Exception:
        """The error for an unexpected token."""
        if token.upper() in _NOT_SIMULATED:
            return NotImplementedError(f"the simulated DynamoDB has no {token}: {self.text}")
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
        """Consume the next token if it is the expected one, ignoring case. Returns whether it was."""
        if self.peek().upper() == wanted:
            self.position += 1
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.takes(wanted):
            raise self.wrong(self.peek())

    def listed(self, part: Callable[[], T]) -> list[T]:
        """Parse parts that are separated by commas."""
        found = [part()]
        while self.takes(","):
            found.append(part())
        return found

    # ------------------------------------------------------------------ operands

    def attribute(self) -> Operand:
        path = [self.part()]
        while self.takes("."):
            path.append(self.part())
        return ".".join(path)

    def part(self) -> Operand:
        token = self.next()
        if token[0] == "#":
            self.names.add(token)
        elif not token[0].isalpha() or self.peek() == "(":
            raise self.wrong(token)
        elif token.upper() in _RESERVED:
            raise invalid(
                f"Invalid {self.kind}: Attribute name is a reserved keyword; reserved keyword: {token}"
            )
        return token

    def operand(self) -> Operand:
        if self.peek()[0] != ":":
            return self.attribute()
        token = self.next()
        self.values.add(token)
        return token

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
        is_function = self.tokens[self.position + 1 : self.position + 2] == ["("]
        if is_function and self.peek() != "size":
            return self._function()
        measured = self._measured() if is_function else ""
        left, sign = measured or self.operand(), self.next()
        if sign.upper() == "BETWEEN" and not measured:
            return self._between(left)
        if sign not in {"=", "<>", "<", "<=", ">", ">="}:
            raise self.wrong(sign)
        right = self.operand()
        if sign not in {"=", "<>"}:
            self.typed += [Typed(sign, operand) for operand in (left, right) if operand[0] == ":"]
        return Size(left, sign, right) if measured else Comparison(left, sign, right)

    def _between(self, left: Operand) -> Condition:
        least = self.operand()
        self.expect("AND")
        most = self.operand()
        self.typed += [Typed("BETWEEN", one) for one in (left, least, most) if one[0] == ":"]
        return Between(left, least, most)

    def _measured(self) -> Operand:
        """Parse `size(name)`."""
        self.next()
        self.expect("(")
        attribute = self.attribute()
        self.expect(")")
        return attribute

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
        if name.upper() in _NOT_SIMULATED:
            raise self.wrong(name)
        if name not in _FUNCTIONS:
            raise invalid(f"Invalid {self.kind}: Invalid function name; function: {name}")
        self.expect("(")
        if self.peek()[0] == ":":
            raise invalid(
                f"Invalid {self.kind}: Operator or function requires a document path; "
                f"operator or function: {name}"
            )
        attribute = self.attribute()
        argument = None
        if name in ("attribute_type", "begins_with"):
            self.expect(",")
            argument = self.operand()
            if argument[0] != ":":
                raise self.wrong(argument)
            self.typed.append(Typed(name, argument))
        self.expect(")")
        return Function(name, attribute, argument)

    # ------------------------------------------------------------------ updates

    def assignment(self) -> Assignment:
        attribute = self.attribute()
        self.expect("=")
        first = self.operand()
        if self.peek() not in {"+", "-"}:
            return Assignment(attribute, first)
        return Assignment(attribute, first, self.next(), self.operand())

    def of_set(self, clause: str) -> Assignment:
        """Parse a part of `ADD` (of numbers or sets), or of `DELETE`."""
        attribute, operand = self.attribute(), self.operand()
        if clause == "DELETE":
            self.typed.append(Typed(clause, operand))
        return Assignment(attribute, attribute, clause, operand)
