"""The meaning of each code that the service answers with, for operators and for docs/generated/codes.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Redrive(Enum):
    """Whether a message may succeed when it is sent again unchanged. Its value ends the sentence that names the repair."""

    NEVER = ""
    """The fault lies in the message itself."""
    BY_CAUSE = ", then redrive with `--cause {code}`"
    """Once the cause is repaired, which is rare: only if the operator names it."""
    ALWAYS = ", then redrive"
    """The cause lies outside the message, and may have been repaired since."""


class Cause(NamedTuple):
    """A cause of dead letters.

    Attributes:
        meaning: The fault, in words.
        repair: What to do, and who does it.
        redrive: Whether the message may succeed afterwards, unchanged.
    """

    meaning: str
    repair: str
    redrive: Redrive = Redrive.NEVER


_OWN_ID = "the sender sends it under an unused id"

DEAD_LETTERS: Mapping[str, Cause] = {
    "INVALID_JSON": Cause(
        "the body is not JSON, or JSON with two meanings, such as a name that is there twice",
        "the sender corrects it",
    ),
    "SCHEMA_VIOLATION": Cause(
        "a field is missing, unknown or out of range", "the sender corrects it"
    ),
    "TOO_MANY_PRODUCTS": Cause(
        "an order has more than 99 distinct products, or more than 200 products times locations",
        "the sender divides the order, or names fewer locations",
    ),
    "ORDER_ID_REUSED": Cause("the id belongs to another order", _OWN_ID),
    "ADJUSTMENT_ID_REUSED": Cause("the id belongs to another adjustment of this product", _OWN_ID),
    "EVENT_ID_REUSED": Cause(
        "the id and the time belong to another event of this product", _OWN_ID
    ),
    "STEP_ID_REUSED": Cause("the id belongs to another step of this order", _OWN_ID),
    "EVENT_FROM_THE_FUTURE": Cause(
        "the time of an event is more than 15 minutes ahead", "the sender corrects its clock"
    ),
    "UNKNOWN_PRODUCT": Cause(
        "the product was not listed in time", "list the product", Redrive.ALWAYS
    ),
    "BELOW_FLOOR": Cause(
        "the adjustment would take the stock below `-backorderLimit`, and no receipt came in time",
        "book the missing units",
        Redrive.ALWAYS,
    ),
    "UNKNOWN_ORDER": Cause(
        "the order of a command did not come in time",
        "wait until the order is answered",
        Redrive.ALWAYS,
    ),
    "NOT_CONFIRMED": Cause(
        "the order was not confirmed before its fulfilment came, nor in time after it",
        "once it is paid, confirm it",
        Redrive.ALWAYS,
    ),
    "NOT_FULFILLED": Cause(
        "the order was not handed over before its return came, nor in time after it",
        "once it is handed over, fulfil it",
        Redrive.ALWAYS,
    ),
    "UNKNOWN_ORDER_STATUS": Cause(
        "another program gave the order a status that the service does not know",
        "correct the status",
        Redrive.BY_CAUSE,
    ),
    "REFUSED_BY_DYNAMODB": Cause(
        "DynamoDB does not accept this write: an error of this service, or a row that has become too large",
        "repair it",
        Redrive.BY_CAUSE,
    ),
    "TOO_MANY_DELIVERIES": Cause(
        "SQS moved the message after 1,000 deliveries, so it has no `errorCode`",
        "read the function's log, repair the cause",
        Redrive.ALWAYS,
    ),
}
"""`errorCode` of dead letters, `code` of direct commands."""

REFUSED: Mapping[str, str] = {
    "PRODUCT_EXISTS": "`create`: the product is listed already, at this location",
    "TOO_MANY_PLACES": "`create`: the product is listed at 40 locations besides the default one",
    "HAS_PLACES": "`delist`: the product is listed at other locations, too; delist it there first",
    "PRICE_CHANGED_RECENTLY": "`changePrice`: the last change is younger than `leastAgeMinutes`; the price stays",
    "NEWER_EVENT_APPLIED": "`change`, `changePrice`: an event with a later time was applied; the price stays",
    "EVENT_ID_REUSED": "`changeDetails`: another event of this id and time was applied",
    "LEASE_LOST": "`count_stock`: the lease has ended, or a rival wrote since; the count will not be booked: acquire again and count again",
    "ADJUSTMENT_ID_REUSED": "`commit`: another adjustment has this id; while the lease lasts, commit under another one",
}
"""Reasons of `REFUSED` that only direct commands get, beside those of the engine (`RejectionReason`)."""

LATER: Mapping[str, str] = {
    "LEASED": "another owner holds a lease on the product; `retryAfterSeconds` says for how long",
    "CONTENTION": "rivals were faster in every attempt",
    "OUT_OF_TIME": "the invocation had no time left",
    "UNKNOWN_PRODUCT": "the message may be early: `StockQueue`, `CatalogueQueue`",
    "BELOW_FLOOR": "the message may be early: `StockQueue`",
    "UNKNOWN_ORDER": "the message may be early: `OrderCommandQueue`",
    "NOT_CONFIRMED": "the message may be early: `OrderCommandQueue`",
    "NOT_FULFILLED": "the message may be early: `OrderCommandQueue`",
    "COMMANDS_WAITING": "many commands wait, and one of them may confirm the order that would expire",
    "BEHIND_A_RETURNED_MESSAGE": "an earlier message of its FIFO group was returned or becomes a dead letter, or an earlier command for its "
    "order was returned",
    "BEHIND_A_DUPLICATE": "another message of the batch has the same id, and must be durable first",
    "CORRUPT_PRODUCT": "the product's row breaks the contract of its table: repair it",
    "CORRUPT_RECORD": "the row of an order or an adjustment breaks the contract of its table, or is full: repair it",
    "CORRUPT_PAGE": "a page of the table `Allotments` breaks its contract: repair it",
    "UNPROCESSED_KEYS": "DynamoDB left out a part of a read",
    "EMPTY_ANSWER": "DynamoDB's answer to a read was empty",
}
"""Reasons to return a message, or to ask for a command again. Codes of DynamoDB come beside these."""

UNDELIVERABLE: Mapping[str, str] = {
    "UNKNOWN_ORDER_STATUS": "another program gave the order a status that the service does not know",
    "UNREADABLE_ROW": "an attribute that the event needs is missing in the row, or has another type",
    "EVENT_TOO_LARGE": "the event has 1 MB or more",
}
"""`errorCode` in `UndeliverableEventsQueue`. Any other is a code of EventBridge."""

BAD_LINES: Mapping[str, str] = {
    "PRODUCT_EXISTS": "the product exists with other attributes, which the message names; nothing was changed",
    "DUPLICATE_LINE": "an earlier line creates or counts this product, has this `adjustmentId`, or changes the product at the "
    "same time; the earlier line counts",
    "UNSUPPORTED_ACTION": "there is no such `action`",
    "BAD_ROW": "the row does not fit the header",
    "NOT_UTF8": "the line is not in UTF-8",
}
"""Codes of `load`, beside those of dead letters, refusals and returned messages."""
