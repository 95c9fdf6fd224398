"""What a month of orders costs on AWS, by kind of order: the table in docs/costs.md.

The units of each kind follow from DynamoDB's rules and from how the service writes; a test measures them on the handler
itself. Prices are those of `operations.prices`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from operations import prices
from operations.prices import Bill

MONTHS = (1_000_000, 10_000_000, 100_000_000)
SECONDS_OF_AN_INVOCATION = 0.1
"""Assumed, and on the safe side: a read and a transaction of 100 actions take some 60 ms on AWS."""
MESSAGES_PER_POLL = 10


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of order, and how it arrives.

    Attributes:
        title: As the table names it.
        batch: Orders in one invocation.
        lines: Products in one order.
        updates: Updates of products in one invocation; several orders for one product share one.
        reads: Products that one invocation reads.
        row_kilobytes: Size of the order's row, rounded up.
    """

    title: str
    batch: int
    lines: int
    updates: int
    reads: int
    row_kilobytes: int = 1

    @property
    def write_units(self) -> float:
        """Of one order: its row and its products in a transaction, which counts twice, and the index."""
        return 2 * self.row_kilobytes + 1 + 2 * self.updates / self.batch

    @property
    def read_units(self) -> float:
        """Of one order: its row (is it a replay?), and each product once an invocation, strongly consistent."""
        return 0.5 + self.reads / self.batch

    def dollars(self, orders: int) -> float:
        """What so many orders cost, without storage."""
        invocations = orders / self.batch
        return Bill(
            write_units=self.write_units * orders,
            read_units=self.read_units * orders,
            invocations=round(invocations),
            seconds=invocations * SECONDS_OF_AN_INVOCATION,
            messages=orders,
            deliveries=orders,
            messages_per_poll=min(self.batch, MESSAGES_PER_POLL),
        ).dollars


KINDS = (
    Kind("1 product, one order at a time", batch=1, lines=1, updates=1, reads=1),
    Kind("1 product each, batches of 10", batch=10, lines=1, updates=10, reads=10),
    Kind("3 products each, batches of 10", batch=10, lines=3, updates=30, reads=30),
    Kind("1 hot product for all, batches of 99", batch=99, lines=1, updates=1, reads=1),
    Kind("the same, all rejected: sold out", batch=99, lines=1, updates=0, reads=1),
    Kind("13 products, one order at a time", 1, lines=13, updates=13, reads=13, row_kilobytes=2),
)


def table() -> str:
    """The table of docs/costs.md, as Markdown."""
    rows = [
        "| order | write units | read units | "
        + " | ".join(f"{n // 10**6} M" for n in MONTHS)
        + " |",
        "|---|" + "--:|" * (2 + len(MONTHS)),
    ]
    rows += [
        f"| {kind.title} | {kind.write_units:.2f} | {kind.read_units:.2f} | "
        + " | ".join(f"${kind.dollars(orders):,.2f}" for orders in MONTHS)
        + " |"
        for kind in KINDS
    ]
    return "\n".join(rows) + "\n"


def updated(page: str) -> str:
    """The page with the table brought up to date."""
    return re.sub(r"\| order \| write units.*?\n(?!\|)", lambda _: table(), page, flags=re.DOTALL)


def storage_dollars(bytes_of_a_row: int, bytes_of_an_index_entry: int) -> float:
    """What a million orders cost for each month that they are kept: row, index entry, and their recovery."""
    gigabytes = (bytes_of_a_row + bytes_of_an_index_entry + 2 * _OVERHEAD_BYTES) * 10**6 / 10**9
    return gigabytes * (prices.STORAGE_GIGABYTE_MONTH + prices.RECOVERY_GIGABYTE_MONTH)


# DynamoDB adds them to each item, and to each entry of an index.
_OVERHEAD_BYTES = 100


if __name__ == "__main__":
    from local import ROOT

    _PAGE = ROOT / "docs" / "costs.md"
    _PAGE.write_text(updated(_PAGE.read_text("utf-8")), "utf-8")
