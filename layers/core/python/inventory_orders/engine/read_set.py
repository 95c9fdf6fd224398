"""The read set: the products as a batch knows them, each from a read, the cache, a failed condition or a commit.

Every plan starts from it, and every write is conditioned on it. So it may be stale: that costs an attempt, and never a
wrong result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import Change, RecordKey
from inventory_orders.domain.product import Product
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.outcomes import ChangeOutcome, returned
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.reader import read
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)


class ReadSet:
    """The products of one batch, as it knows them.

    Args:
        client: Sends the requests.
        executor: Sends them side by side.
        cache: The products as this process left them.
        claims: The claims of the batch. What is read again has to be claimed again.
        pending: The changes that have no outcome yet. A read may answer them by their records, or return them.
        deadline: No request begins after it.
        stats: What it takes is added here.
    """

    def __init__(
        self,
        client: RetryingClient,
        executor: Executor | None,
        cache: ProductCache,
        claims: Claims,
        pending: PendingChanges,
        deadline: Deadline,
        stats: CommitStats,
    ) -> None:
        self._client = client
        self._executor = executor
        self._cache = cache
        self._claims = claims
        self._pending = pending
        self._deadline = deadline
        self._stats = stats
        self._products: dict[str, Product | None] = {}
        self._unreadable: dict[str, str] = {}
        self._from_cache: set[str] = set()

    @property
    def products(self) -> Mapping[str, Product | None]:
        """By id; None where there is no such product."""
        return self._products

    @property
    def unreadable(self) -> Mapping[str, str]:
        """What is wrong, by id, with products that break the table's contract."""
        return self._unreadable

    # ------------------------------------------------------------------ the cache

    @property
    def rests_on_cache(self) -> bool:
        """Whether nobody has looked at some of the products since they were taken from the cache."""
        return bool(self._from_cache)

    def take_from_cache(self, product_ids: Iterable[str]) -> None:
        """Take over products that only this process seems to write, as it left them."""
        for product_id in product_ids:
            cached = self._cache.get(product_id)
            if cached is not None and not self._client.contention.is_contested(product_id):
                self._products[product_id] = cached
                self._from_cache.add(product_id)

    def read_cached(self) -> None:
        """Read what was taken from the cache."""
        cached, self._from_cache = sorted(self._from_cache), set()
        self.read(cached)

    # ------------------------------------------------------------------ reading

    def read_unknown(self) -> None:
        """Read products of changes that took the place of others."""
        known = self._products.keys() | self._unreadable.keys()
        unknown = [
            product_id for product_id in self._pending.product_ids if product_id not in known
        ]
        if unknown:
            self.read(unknown)

    def read(self, keys: Sequence[str | RecordKey], *, records_too: bool = False) -> None:
        """Read products and records, and take over what was found. What cannot be read returns its changes.

        Args:
            keys: What to read.
            records_too: Whether records are read with strong consistency, too. Else they are a hint.
        """
        try:
            snapshot = read(
                self._client,
                self._executor,
                keys,
                self._deadline,
                self._stats,
                records_too=records_too,
            )
        except (ThrottledError, OutcomeUnknownError) as error:
            self._pending.give_up_all(error.code, str(error))
            return
        except StoreError as error:
            self._pending.fail(error)
            return
        now = self._client.clock.now().timestamp()
        self._products.update(snapshot.products)
        for product_id, product in snapshot.products.items():
            self._unreadable.pop(product_id, None)
            self._claims.doubt(product_id)
            if product is not None:
                self._cache.observe_read(product)
                if product.is_claimed and product.lease_left(now) > 0:
                    self._cache.forget(product_id)
                    self._client.contention.observe_conflict(product_id, product.lock_wait)
        self._unreadable.update(snapshot.unreadable)
        for key, record in snapshot.records.items():
            self._pending.recognise(self._pending.first_by_key[key], record)
        for left_out in snapshot.unprocessed:
            if isinstance(left_out, str):
                self._pending.give_up_product(
                    left_out, "UNPROCESSED_KEYS", f"no read answered for product {left_out}"
                )
            elif records_too:
                change = self._pending.first_by_key[left_out]  # type: ignore[index]  # no page
                self._pending.give_up(
                    [change], "UNPROCESSED_KEYS", f"no read answered for {left_out}"
                )
            # Elsewhere records are a hint, and go without.

    # ------------------------------------------------------------------ what came back with other requests

    def take_over_commit(self, after: Mapping[str, Product]) -> None:
        """The batch has just left products so."""
        self._products.update(after)
        self._from_cache -= after.keys()

    def take_over_rows(
        self, rows: Mapping[str, Product | None], unreadable: Mapping[str, str]
    ) -> None:
        """Rows were read at the depot; and some break the table's contract."""
        self._products.update(rows)
        self._unreadable.update(unreadable)

    def observe(self, product_id: str, found: Product | CorruptItemError | None) -> None:
        """Take over a product as it came back: the next plan starts from it."""
        self._claims.doubt(product_id)
        self.note(product_id, found)

    def note(self, product_id: str, found: Product | CorruptItemError | None) -> None:
        """Take over a product as a claim of this batch left it, or as it came back."""
        self._unreadable.pop(product_id, None)
        self._from_cache.discard(product_id)
        if isinstance(found, CorruptItemError):
            self._unreadable[product_id] = str(found)
        else:
            self._products[product_id] = found

    def refuse(self, product_id: str, why: str) -> None:
        """DynamoDB does not take the row of a product: return its changes.

        Noted, too: a draw from a row that nothing here wants would else be tried again and again.
        """
        self._unreadable[product_id] = refusal(product_id, why)
        self._pending.give_up_product(product_id, "CORRUPT_PRODUCT", self._unreadable[product_id])

    # ------------------------------------------------------------------ what it says of leases

    def leased(self, now: float) -> set[str]:
        """Products under a lease of another that is no claim. `now` is a Unix second."""
        return {
            product_id
            for product_id, product in self._products.items()
            if product is not None and product.lease_left(now) > 0 and not product.is_claimed
        }

    def lease_left(self, change: Change, now: float) -> float:
        """Seconds until all products of a change are free."""
        products = (self._products.get(product_id) for product_id in change.product_ids)
        return max((product.lease_left(now) for product in products if product), default=0.0)

    def return_undecidable(self, held: Iterable[Change], now: float) -> None:
        """Return held changes for which there is nothing to wait for, with those behind them in their group."""
        stopped: dict[str, ChangeOutcome] = {}
        for change in held:
            outcome = stopped.get(change.group) if change.group is not None else None
            outcome = outcome or self._undecidable(change, now)
            if outcome is not None:
                self._pending.settle(change, outcome)
                if change.group is not None:
                    stopped[change.group] = outcome

    def _undecidable(self, change: Change, now: float) -> ChangeOutcome | None:
        for product_id in change.product_ids:
            if product_id in self._unreadable:
                problem = self._unreadable[product_id]
                # An error about an item begins with what the item is.
                is_page = problem.startswith("page ")
                return returned("CORRUPT_PAGE" if is_page else "CORRUPT_PRODUCT", problem)
        left = self.lease_left(change, now)
        if left > self._deadline.remaining():
            return returned("LEASED", f"a product is under a lease for another {left:.1f} s", left)
        return None


def refusal(product_id: str, why: str) -> str:
    """What to do about a row that DynamoDB does not take."""
    return f"DynamoDB does not take the row of product {product_id} ({why}); repair the item"
