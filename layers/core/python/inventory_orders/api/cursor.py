"""The place in a list at which the next page begins, as a text that means nothing to its bearer.

It is no secret, and it opens nothing: what is listed is said by the request and checked there, and the cursor is
bound to it by a digest. So a cursor that was changed, or that comes from another list, is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from inventory_orders.api.requests import malformed
from inventory_orders.store.dynamodb import ListPosition

_DIGEST = 16


def encode_cursor(list_name: str, place: ListPosition) -> str:
    """The cursor for what comes after a place in a list; a list of a user's orders is named after its user."""
    content = f"{place.at} {place.id}".encode()
    return base64.urlsafe_b64encode(_digest(list_name, content) + content).rstrip(b"=").decode()


def place_after(list_name: str, query: Mapping[str, str]) -> ListPosition | None:
    """Where to go on in a list; None: at its beginning.

    Raises:
        ProblemError: The query has a cursor that is none of this list.
    """
    return decode_cursor(list_name, query["cursor"]) if "cursor" in query else None


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
        at, place_id = raw[_DIGEST:].decode().split(" ")
    except (binascii.Error, ValueError):
        raise wrong from None
    place = ListPosition(at, place_id)
    # Written again it must be the same: two texts for one place would be one too many.
    if encode_cursor(list_name, place) != cursor:
        raise wrong
    return place


def _digest(list_name: str, content: bytes) -> bytes:
    return hashlib.sha256(list_name.encode() + b" " + content).digest()[:_DIGEST]
