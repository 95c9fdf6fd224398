"""Converts a product and a location into the key of their row, and back.

A product's row at a location has its own stock, lanes and books. Its key, the row's `productId`, identifies it in the
engine, in lanes and in books; messages, answers and events name product and location separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULT_LOCATION = ""
"""The location without a name: the key of a row there is the product's id."""

DEFAULT_NAME = "(default)"
"""What claims and indexes call the location without a name. No location has such a name."""

MAX_PLACES = 40
"""Maximum number of locations of one product besides the default one."""

_SEPARATOR = "#"
"""No id in a message contains it."""


def stock_key(product_id: str, location_id: str = DEFAULT_LOCATION) -> str:
    """Build the key of a product's row at a location."""
    return f"{product_id}{_SEPARATOR}{location_id}" if location_id else product_id


def product_of(key: str) -> str:
    """The id of the product whose row has this key."""
    return key.partition(_SEPARATOR)[0]


def location_of(key: str) -> str:
    """The location of the row with this key."""
    return key.partition(_SEPARATOR)[2]


def public_key(key: str) -> dict[str, str]:
    """Convert a key into the fields of messages, answers and events: `productId`, and `locationId` unless it is the default."""
    product_id, _, location_id = key.partition(_SEPARATOR)
    location = {"locationId": location_id} if location_id else {}
    return {"productId": product_id, **location}


def named_key(key: str) -> dict[str, str]:
    """Like `public_key`, but with the default location too, as `""`: an answer about a booking always says where it is booked."""
    return {"locationId": DEFAULT_LOCATION, **public_key(key)}


def key_in(document: Mapping[str, Any]) -> str:
    """Build the key to which the `productId` and `locationId` of a message or row refer."""
    return stock_key(document["productId"], document.get("locationId", DEFAULT_LOCATION))


def in_words(key: str) -> str:
    """Write a key for people: the product, and its location unless it is the default one."""
    product_id, _, location_id = key.partition(_SEPARATOR)
    return f"{product_id} at {location_id}" if location_id else product_id


def left_out(what: str, location_id: str) -> str:
    """Warn that orders without `locations` cannot buy stock at a location, which is not in the setting `locations`."""
    return (
        f"orders that name no locations cannot buy {what} at {location_id or 'the default location'}: "
        f'add "{location_id}" to the setting `locations`, or send orders with `locations`'
    )
