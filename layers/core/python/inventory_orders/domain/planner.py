"""Decides changes from a snapshot of the products, and packs them into transactions, without I/O, clock or randomness.

Each change is decided as if all earlier ones had been applied. Changes are packed into as few transactions as possible. In a
transaction they share one update of each product, so a whole batch of orders for one product costs one write of its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import filterfalse, groupby
from math import ceil, inf
from operator import attrgetter, itemgetter

from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.change import MAX_ACTIONS, Change, Decision, Transaction, Update
from inventory_orders.domain.product import Product, Stock, StockById
from inventory_orders.domain.purchases import BuyerKey, Purchases, PurchasesByBuyer, together
from inventory_orders.domain.record import RecordKey
from inventory_orders.domain.rejection import Rejection
from inventory_orders.sequences import followers


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one transaction.

    Attributes:
        actions: Maximum number of updates and records.
        size: Maximum size of all items together, in bytes. DynamoDB's quota is 4 MB.
        changes: Maximum number of changes. The engine lowers it to isolate a change that DynamoDB refuses.
        side_by_side: How many transactions of a chain are filled at the same time. The more there are, the less full each
            becomes.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
    """

    actions: int = MAX_ACTIONS
    size: int = 4_000_000
    changes: int = 100
    side_by_side: int = 2


Chain = tuple[tuple[Transaction, ...], ...]
"""Waves that run one after the other, each building on those before it. The transactions of a wave share no product, buyer
or group, so they may run in parallel."""

Place = str | PageKey | BuyerKey
"""The key of a row or page that a transaction writes or checks, other than its records."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Where the products of a batch are sold from in one round: their rows, or pages of lanes.

    Attributes:
        allocation: Rows and pages, with moves that are not written yet.
        sources: The page from which a product is sold, by product id. All other products are sold from their rows.
        purchases: What the buyers of products with purchase limits have bought.
        contested: Buyers whose rows have concurrent writers. Their changes come last, each buyer's in transactions of their own,
            so that a lost one costs no other buyer anything.
    """

    allocation: Allocation
    sources: Mapping[str, PageKey] = field(default_factory=dict)
    purchases: PurchasesByBuyer = field(default_factory=dict, kw_only=True)
    contested: frozenset[BuyerKey] = field(default=frozenset(), kw_only=True)

    def size(self, places: Collection[Place]) -> int:
        """Add up the bytes of rows and pages as stored. A buyer's row that is not known counts as empty."""
        of_buyers = sum(
            self.purchases[p].size
            for p in places
            if isinstance(p, BuyerKey) and p in self.purchases
        )
        return of_buyers + self.allocation.size(p for p in places if not isinstance(p, BuyerKey))

    def arrange(self, decisions: Sequence[Decision], limits: Limits) -> tuple[Chain, ...]:
        """Put decisions into transactions, and transactions into chains. Chains may run in parallel, because they share nothing."""
        drafts = pack(decisions, self, limits)
        transactions = write_down(drafts, self)
        return tuple(
            tuple(
                tuple(transactions[number] for _, _, number in wave)
                for _, wave in groupby(chain, itemgetter(1))
            )
            for _, chain in groupby(_link(drafts), itemgetter(0))
        )


Waiting = tuple[Change, Sequence[Collection[str]]]
"""A change that has to wait, and its offers that are not rejected."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a set of changes.

    Attributes:
        chains: The transactions. Chains share no product and no group, so they may run in parallel.
        missing: Products that leave changes undecided: too few units where they are sold from, but perhaps more elsewhere.
        short: Products for which an offer is rejected or passed over, because they have too few known units or are blocked.
        waiting: Changes that cannot be decided now, because one of their products is blocked or short. Changes that only
            follow one of them in its group are undecided too, but not listed.
        doubted: Changes that would be rejected if none of their offers was possible at one and the same moment. Instead of
            open offers, each has the rows that decide this.
        leaving: Accepted changes whose units leave on an outbound page. The chains do not contain them.
    """

    chains: tuple[Chain, ...] = ()
    missing: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    waiting: tuple[Waiting, ...] = ()
    doubted: tuple[Waiting, ...] = ()
    leaving: tuple[Decision, ...] = ()


@dataclass(slots=True, eq=False)
class Draft:
    """A transaction that is still being filled."""

    decisions: list[Decision] = field(default_factory=list)
    keys: set[object] = field(default_factory=set)
    places: set[Place] = field(default_factory=set)
    contested: Set[BuyerKey] = frozenset()
    actions: int = 0
    size: int = 0

    def add(self, decision: Decision, supply: Supply, limits: Limits | None) -> bool:
        """Add a decision to the transaction if it fits. Returns whether it does. Without limits, every decision fits."""
        contested = supply.contested & decision.purchases
        if self.decisions and contested != self.contested:
            return False
        places: set[Place] = {
            supply.sources.get(p, p) for p in (*decision.deltas, *decision.checked)
        }
        places = (places | decision.purchases) - self.places
        records = len(decision.records)
        actions = self.actions + len(places) + records
        size = self.size + supply.size(places) + records * decision.change.record_size
        if limits is not None and (
            actions > limits.actions or size > limits.size or len(self.decisions) == limits.changes
        ):
            return False
        self.actions, self.size, self.contested = actions, size, contested
        self.decisions.append(decision)
        self.keys |= decision.keys
        self.places |= places
        return True


def plan(
    changes: Sequence[Change],
    supply: Supply,
    blocked: Collection[str] = (),
    limits: Limits = Limits(),
) -> Plan:
    """Decide each change and pack the decisions into transactions.

    Args:
        changes: In the order in which they arrived, with distinct record keys.
        supply: The known rows and pages of the products that the changes name, and where they are sold from.
        blocked: Ids of products that cannot be written at the moment.
        limits: Limits of one transaction. A change that is too big by itself gets its own transaction. DynamoDB may refuse it.

    Returns:
        Transactions that contain each accepted change once. The rejection of a change with one offer is in the last transaction
        that it depends on, or in a later one. Moves that are not written yet go into the first transaction.
    """
    allocation, sources = supply.allocation, supply.sources
    product_ids = {p for change in changes for p in change.product_ids}
    known = product_ids.intersection(sources.keys() | allocation.rows.keys()).difference(blocked)
    working = {
        p: allocation.page_stock(p, sources[p]) if p in sources else allocation.rows[p]
        for p in known
    }
    choice = _Choice(working, frozenset(blocked), dict(supply.purchases))
    in_sequence = _contested_last(changes, supply.contested) if supply.contested else changes
    decisions = choice.decide_all(in_sequence)
    written = {product_id for decision in decisions for product_id in decision.deltas}
    decisions += choice.proven_by(written, supply.contested) if choice.doubted else ()
    leaves = attrgetter("change.outbound")
    return Plan(
        supply.arrange([*filterfalse(leaves, decisions)], limits),
        frozenset(choice.missing),
        frozenset(choice.found_short),
        tuple(choice.waiting),
        tuple(choice.doubted),
        tuple(filter(leaves, decisions)),
    )


def _contested_last(changes: Sequence[Change], contested: Set[BuyerKey]) -> Sequence[Change]:
    """Move the changes of contested buyers to the end, and with them those that must not overtake them."""
    last = _with_followers(
        changes, {c.record_key for c in changes if not contested.isdisjoint(c.buyers)}
    )
    return sorted(changes, key=lambda change: change.record_key in last)


def _with_followers(changes: Iterable[Change], keys: set[RecordKey]) -> set[RecordKey]:
    """Add the changes that must not overtake those with some keys."""
    return keys | {each.record_key for each in followers(changes, lambda c: c.record_key in keys)}


def prove(
    change: Change,
    decisive: Sequence[Collection[str]],
    rows: StockById,
    purchases: PurchasesByBuyer,
) -> Rejection | None:
    """Reject a change if rows that were read at the same moment show that none of its offers was possible then.

    Args:
        change: The change.
        decisive: The decisive rows of each offer: see `Plan.doubted`.
        rows: The rows.
        purchases: What buyers had bought.

    Returns:
        The rejection; None if an offer may have been possible.
    """
    choice = _Choice(dict(rows), frozenset(), dict(purchases))
    rejections = [choice.why(change, offer) for offer in decisive]
    certain = [rejection for rejection in rejections if rejection is not None]
    return change.final_rejection(certain) if len(certain) == len(rejections) else None


_Wait = tuple[Collection[str], set[str]]
"""An offer that has to wait, and the products of which lanes may hold the units that it lacks."""


@dataclass(slots=True)
class _Choice:
    """Chooses an offer for each change in turn, as if all earlier changes had already been applied.

    Attributes:
        working: The products that were read, as they are after the earlier changes.
        blocked: Ids of products that cannot be written at the moment.
        bought: What buyers have bought after the earlier changes.
        missing: See `Plan.missing`.
        found_short: See `Plan.short`.
        waiting: See `Plan.waiting`.
        doubted: See `Plan.doubted`.
    """

    working: dict[str, Stock | None]
    blocked: frozenset[str]
    bought: dict[BuyerKey, Purchases]
    missing: set[str] = field(default_factory=set)
    found_short: set[str] = field(default_factory=set)
    waiting: list[Waiting] = field(default_factory=list)
    doubted: list[Waiting] = field(default_factory=list)

    def decide_all(self, changes: Iterable[Change]) -> list[Decision]:
        """Decide changes in turn. Omits those that are waiting or doubted, and those that follow one of them in its group."""
        decisions: list[Decision] = []
        stopped: set[str] = set()
        for change in changes:
            decision = None if change.group in stopped else self.decide(change)
            if decision is not None:
                decisions.append(decision)
            elif change.group is not None:
                stopped.add(change.group)
        return decisions

    def decide(self, change: Change) -> Decision | None:
        """Accept the first offer with enough units, or reject the change. Returns None if the change is waiting or doubted.

        Units in stock or in lanes come before backorders at a preferred place.
        """
        offers = tuple(self._offers(change)) if change.split else change.offers
        waits: list[_Wait] = []
        for rows in (self._in_stock(change), self.working) if len(offers) > 1 else (self.working,):
            answer = self._choose(change, offers, rows)
            if isinstance(answer, Decision):
                return self._accept(answer)
            waits = answer
            if self._may_have_goods(waits):
                break
        if waits:
            self.missing.update(*(lacking for _, lacking in waits))
            self.waiting.append((change, [offer for offer, _ in waits]))
        else:
            why = partial(self.why, change)
            self.doubted.append((change, change.decisive_rows(why, offers)))
        return None

    def proven_by(self, written: Set[str], contested: Set[BuyerKey]) -> list[Decision]:
        """Reject changes with one offer because of a purchase limit, if the batch writes the rows with the limit in any case.

        The transaction then shows that limit and purchases are true at the same moment, so the changes are not doubted any
        more. It would have to be repeated with every purchase of a contested buyer.
        """
        found = [
            Decision(change, rejection, {}, rows, rows, buyers=change.buyers)
            for change, (rows, *_) in self.doubted
            if len(change.offers) == 1
            and written >= {*rows}
            and contested.isdisjoint(change.buyers)
            # A later change of the batch, such as an amend, may have made room for it.
            and (rejection := self.why(change, rows)) is not None
        ]
        proven = {decision.change.record_key for decision in found}
        self.doubted = [each for each in self.doubted if each[0].record_key not in proven]
        return found

    def _choose(
        self, change: Change, offers: Sequence[Collection[str]], rows: StockById
    ) -> Decision | list[_Wait]:
        """Decide for the first possible offer, or against the only one. Otherwise, return the offers that have to wait."""
        waits: list[_Wait] = []
        for offer in offers:
            answer = self._try(change, offer, rows)
            if not isinstance(answer, Decision):
                waits.append((offer, answer))
                if self._is_unread(offer):
                    # Its products are read before those of less preferred offers.
                    break
            elif answer.rejection is None or (len(offers) == 1 and not answer.rejection.rows):
                return answer
        return waits

    def _may_have_goods(self, waits: Iterable[_Wait]) -> bool:
        """Whether an offer waits for units that lanes may hold, or for products that have yet to be read."""
        return any(lacking or self._is_unread(offer) for offer, lacking in waits)

    def _accept(self, decision: Decision) -> Decision:
        for product_id, delta in decision.deltas.items():
            if (product := self.working[product_id]) is not None:
                after = product.with_stock(product.stock_count + delta, product.version)
                self.working[product_id] = replace(after, **decision.change.stamps)
        self.bought |= {key: self.bought[key].plus(decision.charges) for key in decision.buyers}
        self.bought |= {
            key: self.bought[key].plus({group: -n for group, n in units.items()})
            for key, units in decision.change.refunds.items()
            if key in self.bought
        }
        return decision

    def why(self, change: Change, offer: Collection[str]) -> Rejection | None:
        """Why an offer, or a part of it, is certainly impossible; None if it is possible or has to wait."""
        answer = self._try(change, offer, self.working)
        return answer.rejection if isinstance(answer, Decision) else None

    def _is_unread(self, offer: Collection[str]) -> bool:
        """Whether products of an offer have yet to be read."""
        return not self.working.keys() >= set(offer) and self.blocked.isdisjoint(offer)

    def _offers(self, change: Change) -> Iterator[Collection[str]]:
        """Yield the offers of a change that may be split, and one more, with the most suitable row for each line."""
        yield from change.offers
        if len(change.offers) > 1:
            lines = zip(*change.offers, strict=True)
            yield tuple(min(line, key=partial(self._rank, change)) for line in lines)

    def _rank(self, change: Change, product_id: str) -> tuple[int, ...]:
        """Rank a row for a line, without and with backorders: 0 if it has enough units, 1 if the line has to wait, else 2."""
        views = (self._in_stock(change), self.working)
        answers = (self._try(change, (product_id,), rows) for rows in views)
        return tuple(
            1 if isinstance(answer, set) else 0 if answer.rejection is None else 2
            for answer in answers
        )

    def _in_stock(self, change: Change) -> StockById:
        """The products of a change without their backorders."""
        return {
            product_id: _without_backorders(self.working[product_id])
            for product_id in change.product_ids
            if product_id in self.working
        }

    def _try(self, change: Change, offer: Collection[str], rows: StockById) -> Decision | set[str]:
        """Decide about one offer.

        Args:
            change: The change.
            offer: The offer, or a part of it.
            rows: The products that were read, with or without their backorders.

        Returns:
            The decision or, if the offer has to wait, the products of which lanes may hold the units that the row lacks. These
            include rows that another program has changed against the rules for lent products. If the offer waits because a
            product is blocked or has not been read yet, there are none.
        """
        if not rows.keys() >= set(offer):
            self.found_short |= self.blocked.intersection(offer)
            return set()
        products = {product_id: rows[product_id] for product_id in offer}
        rejection = change.judge(products, self.bought)
        charges: Mapping[str, int] = {}
        if rejection is None:
            wanted = deltas = change.deltas(products)
            charges = change.charges(products)
        else:
            wanted, deltas = {short.product_id: -short.wanted for short in rejection.shortages}, {}
            self.found_short |= {rejection.subject, *wanted} & products.keys()
        lacking = {p for p, delta in wanted.items() if _is_lacking(products[p], delta)}
        self.found_short |= lacking
        buyers = change.buyers if charges else ()
        return lacking or Decision(change, rejection, deltas, offer, (), charges, buyers)


def _is_lacking(product: Stock | None, delta: int) -> bool:
    """Whether a row or page cannot change by `delta` units, but lanes may hold more units."""
    return product is not None and product.is_partial and not product.may_change_by(delta)


def _without_backorders(product: Stock | None) -> Stock | None:
    if isinstance(product, Product) and product.backorder_limit:
        return replace(product, backorder_limit=0)
    return product


def pack(
    decisions: Sequence[Decision], supply: Supply, limits: Limits, first: Sequence[Draft] = ()
) -> list[Draft]:
    """Pack decisions into transactions. Up to `limits.side_by_side` that share nothing are filled together, large changes first.

    If all changes take stock of a product, or all return some, and none is rejected, their sequence does not matter: the stock
    stays above its limit and ends up the same. Otherwise, and within a group, they keep the sequence of arrival.

    Args:
        decisions: In the order in which their changes arrived.
        supply: Where the products are sold from.
        limits: Limits of one transaction.
        first: Drafts that already contain something. They are filled first.
    """
    strict = strict_keys(decisions)
    contested = {
        d.change.record_key for d in decisions if not supply.contested.isdisjoint(d.purchases)
    }
    last = _with_followers((d.change for d in decisions), contested) if contested else contested

    def sequence(decision: Decision) -> tuple[bool, float]:
        # Those whose order matters come first, in order of arrival.
        size = -len(decision.deltas) if strict.isdisjoint(decision.keys) else -inf
        return decision.change.record_key in last, size

    left = sorted(decisions, key=sequence)
    packed, drafts = list[Draft](), list(first)
    while left:
        left = _fill(drafts, left, strict, supply, limits)
        packed += [draft for draft in drafts if draft.decisions or draft.places]
        drafts = []
    return packed or drafts


def strict_keys(decisions: Iterable[Decision]) -> set[object]:
    """Find the keys whose changes must stay in sequence: all groups, and some products."""
    strict: set[object] = set()
    adds: dict[str, bool] = {}
    for decision in decisions:
        accepted = decision.rejection is None
        either = {*decision.products, *decision.purchases} if accepted else ()
        strict |= decision.keys.difference(either)
        strict.update(p for p, n in decision.deltas.items() if adds.setdefault(p, n > 0) != (n > 0))
    return strict


def _fill(
    drafts: list[Draft],
    decisions: Sequence[Decision],
    strict: Set[object],
    supply: Supply,
    limits: Limits,
) -> list[Decision]:
    """Fill drafts that share nothing, and start new ones up to the limit. Returns the decisions that do not fit into any."""
    later: list[Decision] = []
    places = {place for d in decisions for place in (*d.deltas, *d.purchases)}
    actions = len(places) + sum(decision.has_record for decision in decisions)
    # No more drafts are filled in parallel than the decisions need.
    fewest = max(1, ceil(actions / limits.actions), ceil(len(decisions) / limits.changes))
    most = min(limits.side_by_side, fewest)
    passed_over: set[object] = set()
    for decision in decisions:
        keys = decision.keys
        if passed_over.isdisjoint(keys) and _place(decision, drafts, most, supply, limits):
            continue
        later.append(decision)
        passed_over |= strict & keys
    return later


def _place(
    decision: Decision,
    drafts: list[Draft],
    most: int,
    supply: Supply,
    limits: Limits,
) -> bool:
    """Put a decision into a draft, unless two drafts would then share a key. Returns whether it was put into one."""
    sharing = [draft for draft in drafts if not draft.keys.isdisjoint(decision.keys)]
    if len(sharing) > 1:
        return False
    if not sharing and len(drafts) < most:
        # A change that exceeds the limits by itself is left to DynamoDB to judge.
        drafts.append(Draft())
        return drafts[-1].add(decision, supply, None)
    emptiest = sorted(sharing or drafts, key=attrgetter("actions"))
    return any(draft.add(decision, supply, limits) for draft in emptiest)


def _link(drafts: Sequence[Draft]) -> list[tuple[int, int, int]]:
    """Link drafts that share a key to chains.

    Returns:
        For each draft, the number of the first draft in its chain, its wave, and its own number, in this order. Each draft is in
        the earliest possible wave.
    """
    firsts: list[int] = []
    waves: list[int] = []
    for number, draft in enumerate(drafts):
        behind = [n for n in range(number) if not drafts[n].keys.isdisjoint(draft.keys)]
        waves.append(1 + max((waves[n] for n in behind), default=-1))
        joined = {firsts[n] for n in behind}
        first = min(joined, default=number)
        firsts = [*(first if n in joined else n for n in firsts), first]
    return sorted(zip(firsts, waves, range(len(drafts)), strict=True))


def write_down(drafts: Iterable[Draft], supply: Supply) -> list[Transaction]:
    """Turn drafts into transactions. Each starts from the rows and pages as they are after the previous one."""
    allocation, purchases = supply.allocation.copied(), dict(supply.purchases)
    transactions = []
    for draft in drafts:
        for decision in draft.decisions:
            change = decision.change
            for product_id, delta in decision.deltas.items():
                page = supply.sources.get(product_id)
                allocation.add_units(
                    product_id, delta, page, moves_goods=change.moves_goods, stamps=change.stamps
                )
            for product_id in decision.checked:
                allocation.check(product_id)
        transactions.append(with_purchases(allocation.drain(draft.decisions), purchases))
    return transactions


def with_purchases(transaction: Transaction, purchases: dict[BuyerKey, Purchases]) -> Transaction:
    """Add what the decisions of a transaction write about buyers: one update, check or refund of each row.

    Args:
        transaction: The transaction.
        purchases: The rows after the previous transaction. Those that this one updates are replaced.
    """
    if not any(map(attrgetter("purchases"), transaction.decisions)):
        return transaction
    charges: dict[BuyerKey, Counter[str]] = {}
    for decision in transaction.decisions:
        for key in decision.buyers:
            charges.setdefault(key, Counter()).update(decision.charges)
    refunds = together((each.change.refunds for each in transaction.decisions), purchases)
    # A transaction writes each row once.
    for key in charges.keys() & refunds.keys():
        charges[key].subtract(refunds.pop(key))
    before = {key: purchases[key] for key in charges}
    purchases |= {key: before[key].plus(units) for key, units in charges.items() if units}
    updates = tuple(Update(before[key], purchases[key]) for key in charges)
    return replace(transaction, purchases=updates, refunds=refunds)
