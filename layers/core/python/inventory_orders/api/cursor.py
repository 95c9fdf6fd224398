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


def encode_cursor(user_id: str, place: ListPosition) -> str:
    """The cursor for what comes after a place in a user's list."""
    content = f"{place.created_at} {place.order_id}".encode()
    return base64.urlsafe_b64encode(_digest(user_id, content) + content).rstrip(b"=").decode()


def decode_cursor(user_id: str, cursor: str) -> ListPosition:
    """The place that a cursor means.

    Raises:
        ProblemError: It is no cursor of this user's list.
    """
    wrong = malformed(
        "cursor: was not given out for this list; take `next` as it was answered, or leave it out",
        "cursor",
        "INVALID_CURSOR",
    )
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        created_at, order_id = raw[_DIGEST:].decode().split(" ")
    except (binascii.Error, ValueError):
        raise wrong from None
    place = ListPosition(created_at, order_id)
    # Written again it must be the same: two texts for one place would be one too many.
    if encode_cursor(user_id, place) != cursor:
        raise wrong
    return place


def _digest(user_id: str, content: bytes) -> bytes:
    return hashlib.sha256(user_id.encode() + b" " + content).digest()[:_DIGEST]
