"""From changes and a snapshot to transactions and refusals. Pure: no I/O, no clock, no randomness.

Every change that the plan accepts finds its products as all accepted changes before it leave them. Changes of
one transaction that touch a product share one update of it, so that a whole batch for a hot product costs one
write of its row; and they are packed so that as few transactions as possible are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inventory_orders.model import Change, Product, Products, Refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """What one transaction may hold.

    Attributes:
        actions: Updates and records together. DynamoDB's quota for TransactWriteItems is 100.
        size: Bytes of all items together. DynamoDB's quota is 4 MB.
        changes: Changes. Lowered to find the one that DynamoDB refuses among its neighbours.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
    """

    actions: int = 100
    size: int = 4_000_000
    changes: int = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """What the plan says to one change: accepted, unless there is a refusal.

    Attributes:
        change: The change.
        refusal: Why it is refused.
        touched: Change of stock by product id that it makes.
    """

    change: Change
    refusal: Refusal | None
    touched: Mapping[str, int]

    @property
    def has_record(self) -> bool:
        """Whether there is a row to write."""
        return self.refusal is None or self.change.records_refusal


@dataclass(frozen=True, slots=True)
class Update:
    """One version-conditioned write of a product."""

    before: Product
    after: Product


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is written together or not at all."""

    updates: tuple[Update, ...]
    decisions: tuple[Decision, ...]

    @property
    def after(self) -> dict[str, Product]:
        """The updated products by id, as this transaction leaves them."""
        return {update.after.product_id: update.after for update in self.updates}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a set of changes.

    Attributes:
        chains: Transactions of one chain run in order, each building on the one before; chains share no product
            and no group, so they may run side by side.
        held: Changes that cannot be decided now, because a product of theirs is blocked or because they stand
            behind such a change in their group.
    """

    chains: tuple[tuple[Transaction, ...], ...]
    held: tuple[Change, ...]


@dataclass(slots=True)
class _Draft:
    """A transaction that is still being filled."""

    before: dict[str, Product] = field(default_factory=dict)
    after: dict[str, Product] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    actions: int = 0
    size: int = 0

    def cost(self, decision: Decision, working: Products) -> tuple[int, int]:
        """Actions and bytes that a decision would add."""
        new = [
            product
            for product_id in decision.touched
            if product_id not in self.before and (product := working[product_id]) is not None
        ]
        size = sum(product.size for product in new)
        if decision.has_record:
            return len(new) + 1, size + decision.change.record_size
        return len(new), size

    def add(self, decision: Decision, working: dict[str, Product | None]) -> None:
        """Put a decision into the transaction, and its effect into the working state."""
        actions, size = self.cost(decision, working)
        self.actions += actions
        self.size += size
        self.decisions.append(decision)
        for product_id, delta in decision.touched.items():
            product = working[product_id]
            if product is None:
                raise ValueError(f"a change of the unknown product {product_id} was accepted")
            before = self.before.setdefault(product_id, product)
            after = product.with_stock(product.stock_count + delta, before.version + 1)
            self.after[product_id] = working[product_id] = after

    def finish(self) -> Transaction:
        updates = (Update(self.before[key], self.after[key]) for key in self.before)
        return Transaction(tuple(updates), tuple(self.decisions))


def plan(
    changes: Sequence[Change],
    products: Products,
    blocked: Collection[str] = (),
    limits: Limits = Limits(),
) -> Plan:
    """Decide each change and pack the decisions into transactions.

    Args:
        changes: In the order in which they arrived, with distinct record keys.
        products: Every product that the changes name, as read.
        blocked: Ids of products that cannot be written at the moment.
        limits: What one transaction may hold. A change that exceeds them by itself gets a transaction of its
            own, for DynamoDB to judge.

    Returns:
        Transactions in which each accepted change appears once, and each refusal stands in or after the last
        transaction that it depends on.
    """
    working = dict(products)
    drafts: list[_Draft] = []
    last_draft: dict[object, int] = {}
    held: list[Change] = []
    held_groups: set[str] = set()

    for change in changes:
        group = change.group
        if group in held_groups or any(product_id in blocked for product_id in change.product_ids):
            held.append(change)
            if group is not None:
                held_groups.add(group)
            continue

        refusal = change.refusal(working)
        touched = change.deltas(working) if refusal is None else {}
        decision = Decision(change, refusal, touched)
        keys = _ordering_keys(change)
        earliest = max((last_draft.get(key, 0) for key in keys), default=0)
        index = _place(drafts, earliest, decision, working, limits)
        drafts[index].add(decision, working)
        for key in keys:
            last_draft[key] = index

    return Plan(_chains([draft.finish() for draft in drafts]), tuple(held))


def connected(changes: Iterable[Change]) -> bool:
    """Whether all changes share products, however indirectly, so that one chain would hold them all."""
    islands: list[set[str]] = []
    for change in changes:
        island = set(change.product_ids)
        apart = [other for other in islands if other.isdisjoint(island)]
        islands = [*apart, island.union(*(other for other in islands if other not in apart))]
    return len(islands) <= 1


def _ordering_keys(change: Change) -> list[object]:
    """What orders a change among others: its products, and its group."""
    keys: list[object] = list(change.product_ids)
    if change.group is not None:
        keys.append(("group", change.group))
    return keys


def _place(
    drafts: list[_Draft], earliest: int, decision: Decision, working: Products, limits: Limits
) -> int:
    """Index of the draft to put a decision into: where it adds the fewest actions; a new one if none has room."""
    best, fewest = len(drafts), limits.actions + 1
    for index in range(earliest, len(drafts)):
        draft = drafts[index]
        actions, size = draft.cost(decision, working)
        if (
            actions < fewest
            and draft.actions + actions <= limits.actions
            and draft.size + size <= limits.size
            and len(draft.decisions) < limits.changes
        ):
            best, fewest = index, actions
    if best == len(drafts):
        drafts.append(_Draft())
    return best


def _chains(transactions: Sequence[Transaction]) -> tuple[tuple[Transaction, ...], ...]:
    """Group transactions that share a product or a group, however indirectly, keeping their order."""
    chain_of: list[int] = list(range(len(transactions)))

    def root(index: int) -> int:
        while chain_of[index] != index:
            chain_of[index] = chain_of[chain_of[index]]
            index = chain_of[index]
        return index

    first_user: dict[object, int] = {}
    for index, transaction in enumerate(transactions):
        for decision in transaction.decisions:
            for key in _ordering_keys(decision.change):
                earlier, later = sorted((root(first_user.setdefault(key, index)), root(index)))
                chain_of[later] = earlier

    chains: dict[int, list[Transaction]] = {}
    for index, transaction in enumerate(transactions):
        chains.setdefault(root(index), []).append(transaction)
    return tuple(tuple(chain) for chain in chains.values())
