"""Evaluates the metric math of our dashboard: + - * / and parentheses over numbers and ids.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from local.dashboard.metrics import DashboardError

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Expression:
    """An expression of metric math, parsed once and evaluated for each period.

    Attributes:
        ids: The ids that it refers to.
    """

    def __init__(self, text: str) -> None:
        """Parse an expression.

        Raises:
            DashboardError: It uses unsupported syntax.
        """
        self._text = text
        try:
            # These operations have the same syntax in Python, and Python's parser executes nothing.
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DashboardError(f"the expression {text!r} cannot be parsed") from error
        self.ids: frozenset[str] = frozenset(self._check(self._root))

    def value(self, values: Mapping[str, float | None]) -> float | None:
        """Compute the value for one period. As on CloudWatch, it is undefined (None) if a value is missing or the divisor is zero."""
        return self._evaluate(self._root, values)

    def _check(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return set()
            case ast.Name(id=name):
                return {name}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._check(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._check(left) | self._check(right)
        raise DashboardError(
            f"the expression {self._text!r} is not supported; only + - * / ( ), numbers and ids are"
        )

    def _evaluate(self, node: ast.expr, values: Mapping[str, float | None]) -> float | None:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(operand=operand):
                value = self._evaluate(operand, values)
                return None if value is None else -value
            case ast.BinOp(left=left, op=op, right=right):
                first, second = self._evaluate(left, values), self._evaluate(right, values)
                if first is None or second is None or (isinstance(op, ast.Div) and second == 0):
                    return None
                return _OPERATORS[type(op)](first, second)
        raise AssertionError(f"unchecked: {ast.dump(node)}")
