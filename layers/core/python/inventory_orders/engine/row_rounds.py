"""Rounds by row: products are sold from their rows, optimistically until a rival is met, then under a claim.

On contested products one is claimed before the next attempt, and the last write of the chain releases it. One claim
covers a whole chain, because its rivals want the same popular products. Where that is not enough, one more is claimed
after each loss, all in the order of their ids, so that no two batches wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor

from inventory_orders.clock import Deadline
from inventory_orders.domain.planner import Chain, Plan, plan
from inventory_orders.domain.product import Product
from inventory_orders.engine.chains import ChainRunner, touched
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.consequences import Consequences
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.read_set import ReadSet, refusal
from inventory_orders.engine.recall import bring_home
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
)
from inventory_orders.retry import LEASE_POLL_SECONDS
from inventory_orders.store.actions import ConditionFailedError


class RowRounds:
    """Decides what is pending from the products' rows, round by round.

    Args:
        client: Sends the requests, and knows the rivals.
        executor: Sends requests side by side.
        lanes: What this process knows of lanes; None if it uses none.
        claims: The claims of the batch.
        pending: The changes that have no outcome yet.
        known: The products as the batch knows them.
        chains: Commits what is planned.
        consequences: What was learned of earlier attempts.
        deadline: No request begins after it.
        stats: Where to note what it took.
        patient: Whether it waits where a rival is faster.
    """

    def __init__(
        self,
        client: RetryingClient,
        executor: Executor | None,
        lanes: Lanes | None,
        claims: Claims,
        pending: PendingChanges,
        known: ReadSet,
        chains: ChainRunner,
        consequences: Consequences,
        deadline: Deadline,
        stats: CommitStats,
        *,
        patient: bool,
    ) -> None:
        self._client = client
        self._executor = executor
        self._lanes = lanes
        self._claims = claims
        self._pending = pending
        self._known = known
        self._chains = chains
        self._consequences = consequences
        self._deadline = deadline
        self._stats = stats
        self._patient = patient

    def begin(self) -> None:
        """Read what the batch is about, but for products that only this process seems to write.

        Where a contested product has to be claimed, that comes first: what was read before the wait would be stale
        after it, and so would be what is cached of the other products. Records are read with the products, as a hint
        which changes were answered before; by themselves they are worth a request only where replays are expected.
        """
        changes = self._pending.first_by_key
        contention = self._client.contention
        wanted = self._pending.product_ids
        if not self._patient:
            if any(contention.is_contested(product_id) for product_id in wanted):
                self._pending.give_up_all("CONTENTION", "rivals were met on a product a moment ago")
            else:
                # A copy that is stale would cost the only attempt.
                self._known.read([*wanted, *changes])
            return
        contention.demand.see(dict.fromkeys(c.product_ids, 1) for c in changes.values())
        to_claim = contention.product_to_claim(wanted)
        if to_claim is not None:
            self._take_claim(to_claim)
        else:
            self._known.take_from_cache(wanted)
        unknown = [product_id for product_id in wanted if product_id not in self._known.products]
        about_records_alone = not all(change.product_ids for change in changes.values())
        if unknown or about_records_alone or self._pending.may_be_replays:
            # What a command may do hangs on where its order stands, so it must not be told by a stale copy.
            self._known.read([*unknown, *changes], records_too=about_records_alone)

    def round(self) -> None:
        """Plan what is pending, commit what can be, and learn from what could not."""
        self._known.read_unknown()
        now = self._client.clock.now().timestamp()
        leased = self._known.leased(now)
        planned = plan(
            list(self._pending),
            self._known.products,
            leased | self._known.unreadable.keys() | self._consequences.throttled,
            self._consequences.limits,
        )
        if self._known.rests_on_cache and (planned.short or _rejects(planned)):
            # Nothing is rejected or brought home on the word of a cache.
            self._known.read_cached()
            return
        to_claim = [self._claims.to_take(self._written(chain), now) for chain in planned.chains]
        ready = [
            chain for chain, wanted in zip(planned.chains, to_claim, strict=True) if not wanted
        ]
        results = self._chains.run(ready)
        has_lost = self._consequences.learn(results)
        self._known.return_undecidable(planned.held, now)
        if has_lost:
            self._consequences.count_loss()
            contention = self._client.contention
            waits_in_line = contention.product_to_claim(self._pending.product_ids) is not None
            if self._consequences.throttled or self._claims.held or not waits_in_line:
                self._consequences.back_off()
        elif ready:
            if all(result.complete for result in results):
                self._claims.release()
        elif not self._patient:
            self._pending.give_up_all("CONTENTION", "it would have to wait for others")
        elif self._pending and planned.chains:
            self._claim(planned.chains[0], to_claim[0])
        elif planned.short:
            self._bring_home(planned.short)
        elif self._consequences.throttled:
            # All others are through.
            self._consequences.retry_throttled()
        elif self._pending:
            self._wait_for_lease(leased, now)

    # ------------------------------------------------------------------ claims

    def _written(self, chain: Chain) -> dict[str, Product | None]:
        """The products that a chain writes, by id, as they are known."""
        return {product_id: self._known.products[product_id] for product_id in touched(chain)}

    def _claim(self, chain: Chain, wanted: set[str]) -> None:
        """Claim the first of the products that a chain needs, and read the others that it touches.

        The next one, if it is still needed, in the next round: always in the order of their ids, so that no two
        batches wait for each other. What cannot be claimed is for the next round to judge.
        """
        self._take_claim(min(wanted))
        if others := sorted(touched(chain) - self._claims.held.keys()):
            self._known.read(others)

    def _take_claim(self, product_id: str) -> None:
        try:
            product = self._claims.take(product_id, alone=self._pending.is_about_one_product)
        except ConditionFailedError as failed:
            found = failed.found
            self._known.observe(
                product_id, found if isinstance(found, Product | CorruptItemError) else None
            )
        except CorruptItemError as error:
            self._known.observe(product_id, error)
        except ThrottledError as error:
            self._pending.give_up_product(product_id, error.code, str(error))
        except RequestInvalidError as error:
            self._claims.over(product_id)
            self._pending.give_up_product(
                product_id, "CORRUPT_PRODUCT", refusal(product_id, str(error))
            )
        except StoreError as error:
            self._pending.fail(error)
        else:
            self._known.note(product_id, product.unlocked())

    # ------------------------------------------------------------------ waiting

    def _wait_for_lease(self, leased: set[str], now: float) -> None:
        shortest = min(
            (left for change in self._pending if (left := self._known.lease_left(change, now)) > 0),
            default=0.0,
        )
        delay = min(shortest, LEASE_POLL_SECONDS)
        if self._client.pause(delay, self._deadline):
            self._stats.lease_wait += delay
            self._known.read(sorted(leased))
        else:
            self._pending.give_up_all("LEASED", "no time left to wait for a lease")

    # ------------------------------------------------------------------ what lies in lanes

    def _bring_home(self, short: Collection[str]) -> None:
        """Get the units of products that lie in lanes. What cannot be had in time returns its changes."""
        # Under a claim nobody draws in between: a lane that sells fast would else be filled again and again.
        held = (self._claims.use(product_id, release=False) for product_id in short)
        owners = [use.owner for use in held if use is not None]
        known = (self._known.products[product_id] for product_id in short)
        if self._lanes is not None:
            # The lane of this process may lose units, too.
            self._lanes.forget()
        corrupt: CorruptItemError | None = None
        try:
            bring_home(
                self._client,
                self._executor,
                [product for product in known if product is not None],
                self._deadline,
                self._stats,
                owners,
            )
        except CorruptItemError as error:
            corrupt = error
        except (ThrottledError, OutcomeUnknownError) as error:
            for product_id in short:
                self._pending.give_up_product(product_id, error.code, str(error))
            return
        except StoreError as error:
            self._pending.fail(error)
            return
        self._known.read(sorted(short))
        if corrupt is not None:
            for product_id in short:
                product = self._known.products.get(product_id)
                if product is not None and product.lent_to:
                    self._pending.give_up_product(product_id, corrupt.code, str(corrupt))


def _rejects(planned: Plan) -> bool:
    return any(
        decision.rejection is not None
        for transaction in planned.transactions
        for decision in transaction.decisions
    )
