"""The place in a list at which the next page begins, as a text that means nothing to its bearer.

It is no secret, and it opens nothing: what is listed is said by the request and checked there, and the cursor is
bound to it by a digest. So a cursor that was changed, or that comes from another list, is refused.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from inventory_orders.api.requests import malformed
from inventory_orders.store.dynamodb import ListPosition

_DIGEST = 16


def encode_cursor(list_name: str, place: ListPosition) -> str:
    """The cursor for what comes after a place in a list; a list of a user's orders is named after its user."""
    content = f"{place.at} {place.id}".encode()
    digest = hashlib.sha256(list_name.encode() + b" " + content).digest()[:_DIGEST]
    return base64.urlsafe_b64encode(digest + content).rstrip(b"=").decode()


def next_page(list_name: str, last: ListPosition | None) -> dict[str, Any]:
    """What the answer with a page says of the next one; nothing on the last."""
    return {} if last is None else {"next": encode_cursor(list_name, last)}


def place_after(list_name: str, query: Mapping[str, str]) -> ListPosition | None:
    """Where to go on in a list; None: at its beginning.

    Raises:
        ProblemError: The query has a cursor that is none of this list.
    """
    if "cursor" not in query:
        return None
    cursor = query["cursor"]
    with suppress(ValueError):
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        at, place_id = raw[_DIGEST:].decode().split(" ")
        place = ListPosition(at, place_id)
        # Written again it must be the same: two texts for one place would be one too many.
        if encode_cursor(list_name, place) == cursor:
            return place
    raise malformed(
        "cursor: was not given out for this list; take `next` as it was answered, or leave it out",
        "cursor",
        "INVALID_CURSOR",
    )
