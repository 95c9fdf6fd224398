"""Creates many products, or their stock at other locations, in few transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.location import product_of
from inventory_orders.domain.product import NewProduct, Product, with_limit
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    InvalidMessageError,
    OutcomeError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.products.catalogue import (
    ProductCatalogue,
    create_actions,
    product_to_create,
    rows_elsewhere,
)
from inventory_orders.sequences import in_portions
from inventory_orders.store.cancellations import Meaning, TransactionCancelledError
from inventory_orders.store.writes import ActionKind

MAX_AT_ONCE = 50
"""The maximum number of products to create together."""

_MAX_ACTIONS = 100


@dataclass(frozen=True, slots=True)
class Creation:
    """The result for one of the products to create.

    Attributes:
        created: Whether it was created.
        product: The current product, which is unchanged if it already existed. None after an error.
        error: The product exists and breaks the table's contract; DynamoDB will never accept the new one; another product
            has one of its barcodes; its purchase limit is not clear; a place's product does not exist; or its list of places is
            full.
    """

    created: bool
    product: Product | None = None
    error: OutcomeError | None = None


def create_many(
    client: RetryingClient, new: Sequence[NewProduct], deadline: Deadline
) -> list[Creation]:
    """Create products, each as `ProductCatalogue.create` does. Returns a result for each, in sequence.

    A transaction has room for 33 products of one word each, or 10 of eight words. A product that exists stays unchanged, and the rest is sent again without it. The same applies to a product that
    DynamoDB will never accept or of which another one has a barcode, and to a place that its product cannot list. You may repeat the call after an error: it
    finds the products that it has created.

    Raises:
        ValueError: There are more than `MAX_AT_ONCE`, or two for the same product.
        StoreError: DynamoDB failed until the deadline.
    """
    # A transaction writes each row at most once, and a place writes its product's own row.
    if len(new) > MAX_AT_ONCE or len({product_of(each.product_id) for each in new}) < len(new):
        raise ValueError(f"create_many takes at most {MAX_AT_ONCE} products with distinct ids")
    creations: dict[str, Creation] = {}
    for some in in_portions(new, MAX_AT_ONCE, _count_actions, _MAX_ACTIONS):
        creations |= _create_all(client, some, deadline)
    return [creations[each.product_id] for each in new]


def _count_actions(new: NewProduct) -> int:
    return len(create_actions(product_to_create(new, "")))


def _create_all(
    client: RetryingClient, new: Sequence[NewProduct], deadline: Deadline
) -> dict[str, Creation]:
    creations: dict[str, Creation] = {}
    while left := [each for each in new if each.product_id not in creations]:
        try:
            creations |= _create_together(client, left, deadline)
        except (TransactionCancelledError, RequestInvalidError) as error:
            if isinstance(error, TransactionCancelledError) and not _has_culprit(error):
                raise
            creations |= _create_apart(client, left, deadline)
    return creations


def _create_together(
    client: RetryingClient, new: Sequence[NewProduct], deadline: Deadline
) -> dict[str, Creation]:
    """Send one transaction. If some of the products exist, it creates none and returns the existing ones."""
    rows, at = rows_elsewhere(client, new, deadline), timestamp(client.clock.now())
    products, creations = list[Product](), dict[str, Creation]()
    for each in new:
        try:
            products.append(product_to_create(with_limit(each, rows), at))
        except InvalidMessageError as error:
            creations[each.product_id] = Creation(created=False, error=error)
    actions = [action for product in products for action in create_actions(product, rows)]
    try:
        client.write(actions, deadline, CommitStats())
    except TransactionCancelledError as cancelled:
        if existing := _existing(cancelled):
            return existing
        raise
    return creations | {p.product_id: Creation(created=True, product=p) for p in products}


def _create_apart(
    client: RetryingClient, new: Sequence[NewProduct], deadline: Deadline
) -> dict[str, Creation]:
    """Split the products in half until the one that cannot be created is on its own."""
    if len(new) == 1:
        return {new[0].product_id: _create_alone(client, new[0], deadline)}
    middle = len(new) // 2
    first = _create_all(client, new[:middle], deadline)
    return first | _create_all(client, new[middle:], deadline)


def _create_alone(client: RetryingClient, new: NewProduct, deadline: Deadline) -> Creation:
    try:
        created, product = ProductCatalogue(client).create(new, deadline)
    except (ThrottledError, OutcomeUnknownError, StoreUnavailableError):
        raise
    except OutcomeError as error:
        return Creation(created=False, error=error)
    return Creation(created, product)


def _has_culprit(cancelled: TransactionCancelledError) -> bool:
    """Whether some of the products can never be created, although the rest can."""
    others = cancelled.meanings_of(ActionKind.PLACES, ActionKind.BARCODE)
    return Meaning.CONDITION_FAILED in others or Meaning.INVALID in cancelled.meanings


def _existing(cancelled: TransactionCancelledError) -> dict[str, Creation]:
    """Return the products of a cancelled transaction that already exist."""
    found: dict[str, Creation] = {}
    for reason in cancelled.of(ActionKind.PRODUCT):
        if isinstance(reason.found, Product):
            found[reason.product_id] = Creation(created=False, product=reason.found)
        elif isinstance(reason.found, CorruptItemError):
            found[reason.product_id] = Creation(created=False, error=reason.found)
    return found
