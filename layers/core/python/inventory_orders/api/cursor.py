"""The place in a list at which the next page begins, as a text that means nothing to its bearer.

It is no secret, and it opens nothing: whose orders are listed is said by the query and checked there, and the cursor is
bound to it by a digest. So a cursor that was changed, or that comes from another list, is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from inventory_orders.api.problems import malformed
from inventory_orders.store.dynamodb import ListPosition

_DIGEST = 16


def encode_cursor(list_name: str, place: ListPosition) -> str:
    """The cursor for what comes after a place in a list, which is named after its user, or `#CONFIRMED`."""
    content = f"{place.at} {place.order_id}".encode()
    return base64.urlsafe_b64encode(_digest(list_name, content) + content).rstrip(b"=").decode()


def decode_cursor(list_name: str, cursor: str) -> ListPosition:
    """The place that a cursor means.

    Raises:
        ProblemError: It is no cursor of this list.
    """
    wrong = malformed(
        "cursor: was not given out for this list; take `next` as it was answered, or leave it out",
        "cursor",
        "INVALID_CURSOR",
    )
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        at, order_id = raw[_DIGEST:].decode().split(" ")
    except (binascii.Error, ValueError):
        raise wrong from None
    place = ListPosition(at, order_id)
    # Written again it must be the same: two texts for one place would be one too many.
    if encode_cursor(list_name, place) != cursor:
        raise wrong
    return place


def _digest(list_name: str, content: bytes) -> bytes:
    return hashlib.sha256(list_name.encode() + b" " + content).digest()[:_DIGEST]
