"""The path of an order: the modules and functions that a batch enters, in order of first call.

$ python -m tests.support.way          # from rows
$ python -m tests.support.way --lanes  # as deployed: rows, with a lane behind them
"""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import tests.support.environment  # noqa: F401 - before any module of the project
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.loop import Engine
from local import ROOT
from testing.schedules.in_turn.shop import Shop
from testing.world.events import order_body, sqs_event
from testing.world.handlers import load_handler

_OURS = (ROOT / "layers/core/python/inventory_orders", ROOT / "functions")
_ORDERS = 10
_PARTS = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}


@dataclass
class Way:
    """The code that a batch passed through.

    Attributes:
        functions: The functions by module. A comprehension counts as the function that contains it.
        types: The classes that were instantiated.
        changes: How often one module called another or returned to it.
    """

    functions: dict[str, list[str]] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)
    changes: int = 0
    _last: str = ""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call. `sys.setprofile` calls this."""
        name = frame.f_code.co_name
        if event != "call":
            return
        if name == "__init__":
            kind = type(frame.f_locals.get("self"))
            if kind.__module__.startswith("inventory_orders"):
                self.types.add(kind.__qualname__)
        path = Path(frame.f_code.co_filename)
        folder = next((folder for folder in _OURS if folder in path.parents), None)
        if folder is None or name in _PARTS:
            return
        module = str(path.relative_to(folder))
        entered = self.functions.setdefault(module, [])
        shown = f"{name}:{frame.f_code.co_firstlineno}"
        if shown not in entered:
            entered.append(shown)
        self.changes += module != self._last
        self._last = module


def follow(*, lanes: bool) -> Way:
    """Trace a batch of ten orders of three products through the handler, in a new process.

    A first run without tracing fills Python's caches, so that the result does not depend on earlier code.
    """
    products = [NewProduct(product_id, 1000) for product_id in ("tea", "pot", "cup")]
    bodies = [
        order_body(f"o-{number}", {products[number % 3].product_id: 1}) for number in range(_ORDERS)
    ]
    way = Way()
    # The handler logs to standard output.
    with redirect_stdout(io.StringIO()), Shop(products).open() as shop:
        shop.invoke("place_orders", sqs_event(order_body("o-first", {"tea": 1})))
        shop.restart()
        shop.handler("place_orders")
        # As Lambda does in its init phase: the import creates the clients.
        load_handler("place_orders")
        if not lanes:
            process = shop.process("place_orders")
            process.__dict__["engine_with_lanes"] = Engine(process.engine.client)
        sys.setprofile(way.note)
        try:
            answer = shop.invoke("place_orders", sqs_event(*bodies))
        finally:
            sys.setprofile(None)
        placed = [shop.status(f"o-{number}") for number in range(_ORDERS)]
    if answer["batchItemFailures"] or set(placed) != {"PENDING"}:
        raise RuntimeError(f"not all orders were placed: {placed}")
    return way


def main() -> None:
    """Print the path of a batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lanes", action="store_true", help="sell as a deployed worker does")
    way = follow(lanes=parser.parse_args().lanes)
    for module, functions in way.functions.items():
        print(f"{module:<30} {' '.join(name.partition(':')[0] for name in functions)}")
    count = sum(map(len, way.functions.values()))
    print(
        f"\n{len(way.functions)} modules, {count} functions, {len(way.types)} types, "
        f"{way.changes} changes of module"
    )


if __name__ == "__main__":
    main()
