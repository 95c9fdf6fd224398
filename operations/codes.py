"""The meaning of each code in the service's answers, for operators and for docs/generated/codes.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Redrive(Enum):
    """Whether a message may succeed when it is sent again unchanged. Its value ends the sentence about the repair."""

    NEVER = ""
    """The message itself is wrong."""
    BY_CAUSE = ", then redrive with `--cause {code}`"
    """The cause is outside the message but rarely fixed, so the operator has to name it."""
    ALWAYS = ", then redrive"
    """The cause is outside the message, and may have been fixed since."""


class Cause(NamedTuple):
    """A cause of dead letters.

    Attributes:
        meaning: What went wrong.
        repair: What to do, and who does it.
        redrive: Whether the unchanged message may succeed afterwards.
    """

    meaning: str
    repair: str
    redrive: Redrive = Redrive.NEVER


_IF_SECOND = (
    "look at the stored one: only if this is a second one, the sender sends it with an unused id"
)

DEAD_LETTERS: Mapping[str, Cause] = {
    "INVALID_JSON": Cause(
        "the body is not JSON, or is ambiguous JSON, such as an object with a repeated name",
        "the sender corrects it",
    ),
    "SCHEMA_VIOLATION": Cause(
        "a field is missing, unknown or out of range", "the sender corrects it"
    ),
    "TOO_MANY_PRODUCTS": Cause(
        "an order has more than 99 distinct products, or its products times its locations exceed 200",
        "the sender splits the order, or names fewer locations",
    ),
    "ORDER_ID_REUSED": Cause(
        "the id belongs to another order",
        "look at the stored order, which may be the same purchase: only if this is a second one, the sender sends it with an "
        "unused id",
    ),
    "ADJUSTMENT_ID_REUSED": Cause(
        "the id belongs to another adjustment of this product", _IF_SECOND
    ),
    "TRANSFER_ID_REUSED": Cause(
        "the id belongs to another transfer or adjustment of this product", _IF_SECOND
    ),
    "EVENT_ID_REUSED": Cause(
        "another event of this product has the same id and time",
        "if this event has the right details, the sender sends them with a later `eventTime`",
    ),
    "STEP_ID_REUSED": Cause("the id belongs to another step of this order", _IF_SECOND),
    "EVENT_FROM_THE_FUTURE": Cause(
        "the time of an event is more than 15 minutes ahead",
        "the sender sends it when it takes effect, or corrects its clock",
    ),
    "UNKNOWN_PRODUCT": Cause(
        "the product was not listed in time", "if the id is right, list the product", Redrive.ALWAYS
    ),
    "BELOW_FLOOR": Cause(
        "stock would fall below `-backorderLimit`, and no receipt arrived in time",
        "book the receipt that is missing, or cancel lost units in the orders that hold them",
        Redrive.ALWAYS,
    ),
    "UNKNOWN_ORDER": Cause(
        "the order that the command names did not arrive in time",
        "wait until the order has an outcome",
        Redrive.ALWAYS,
    ),
    "NOT_CONFIRMED": Cause(
        "the order was not confirmed before its fulfilment arrived, nor in time afterwards",
        "once it is paid, confirm it",
        Redrive.ALWAYS,
    ),
    "NOT_FULFILLED": Cause(
        "the order was not handed over before its return arrived, nor in time afterwards",
        "once it is handed over, book that",
        Redrive.ALWAYS,
    ),
    "UNKNOWN_ORDER_STATUS": Cause(
        "another program set a status that the service does not know",
        "have the status corrected",
        Redrive.BY_CAUSE,
    ),
    "REFUSED_BY_DYNAMODB": Cause(
        "DynamoDB does not accept this write: a bug in this service, or a row that has become too large",
        "have the bug fixed, or the row repaired",
        Redrive.BY_CAUSE,
    ),
    "TOO_MANY_DELIVERIES": Cause(
        "SQS moved the message after 1,000 deliveries, so it has no `errorCode`",
        "have the cause found in the function's log and fixed",
        Redrive.ALWAYS,
    ),
}
"""`errorCode` of dead letters, and `code` in answers to direct commands."""

REFUSED: Mapping[str, str] = {
    "PRODUCT_EXISTS": "`create`: the product is already listed at this location",
    "TOO_MANY_PLACES": "`create`: the product is listed at the maximum of 40 locations (not counting the default)",
    "BARCODE_TAKEN": "`create`, `change`: another product has one of the barcodes; remove it there first",
    "BARCODES_CHANGED": "`change`: the product has other barcodes than `ifBarcodes`; look at it, and repeat the change",
    "HAS_PLACES": "`delist`: the product is still listed at other locations; delist it there first",
    "PRICE_CHANGED_RECENTLY": "`changePrice`: the last change is more recent than `leastAgeMinutes`; the price stays unchanged",
    "NEWER_EVENT_APPLIED": "`change`, `changePrice`: an event with a later time was applied; the price stays unchanged",
    "EVENT_ID_REUSED": "`changeDetails`: another event with this id and time was applied",
    "LEASE_LOST": "`count_stock`: the lease has ended, or a concurrent writer changed the row; the count will not be booked: acquire and count again",
    "ADJUSTMENT_ID_REUSED": "`commit`, `count`: another adjustment has this id; commit or count with another id",
}
"""Reasons of `REFUSED` that only direct commands get, in addition to the engine's `RejectionReason`."""

LATER: Mapping[str, str] = {
    "LEASED": "another owner holds a lease on the product; it ends within `retryAfterSeconds`",
    "CONTENTION": "a concurrent writer was faster on every attempt",
    "OUT_OF_TIME": "the invocation had no time left",
    "UNKNOWN_PRODUCT": "the message may be early: `StockQueue`, `CatalogueQueue`",
    "BELOW_FLOOR": "the message may be early: `StockQueue`",
    "UNKNOWN_ORDER": "the message may be early: `OrderCommandQueue`",
    "NOT_CONFIRMED": "the message may be early: `OrderCommandQueue`",
    "NOT_FULFILLED": "the message may be early: `OrderCommandQueue`",
    "COMMANDS_WAITING": "many commands are waiting, and one of them may confirm the order that would expire",
    "BEHIND_A_RETURNED_MESSAGE": "an earlier message of its FIFO group was returned or becomes a dead letter, or an earlier command for its "
    "order was returned",
    "BEHIND_A_DUPLICATE": "another message of the batch has the same id, and must be committed first",
    "CORRUPT_PRODUCT": "the product's row breaks the contract of its table: repair it",
    "CORRUPT_RECORD": "the row of an order or an adjustment breaks the contract of its table, or has no space for more: repair it",
    "CORRUPT_PURCHASES": "the row of a buyer in the table `Purchases` breaks its contract, or has no space for more: repair it",
    "CORRUPT_PAGE": "a page of the table `Allotments` breaks its contract: repair it",
    "UNPROCESSED_KEYS": "DynamoDB returned only part of a read",
    "OUTBOUND_PAGES_FULL": "all [outbound pages](../glossary.md#outbound-page) are full, or unreadable; the next sweep makes room",
    "AWS_UNREACHABLE": "no answer came from AWS; the message names the exception, such as `ReadTimeoutError`",
}
"""Reasons to return a message, or to ask for a command again, in addition to AWS's own codes."""

_SHORT_OF_CAPACITY = "a table or the account is short of capacity"
_FAILED = "DynamoDB failed; the service repeats the request"

FROM_AWS: Mapping[str, str] = {
    "ProvisionedThroughputExceededException": _SHORT_OF_CAPACITY,
    "RequestLimitExceeded": _SHORT_OF_CAPACITY,
    "ThrottlingException": _SHORT_OF_CAPACITY,
    "Throttling": _SHORT_OF_CAPACITY,
    "TooManyRequestsException": _SHORT_OF_CAPACITY,
    "TransactionConflictException": "a concurrent transaction writes the row",
    "TransactionInProgressException": "an earlier attempt of the same request is still in flight",
    "InternalServerError": _FAILED,
    "ServiceUnavailable": _FAILED,
    "ConditionalCheckFailedException": "a concurrent writer changed the row",
    "TransactionCanceledException": "a permission for one of a transaction's actions is missing, or DynamoDB gives an unknown reason; the "
    "message has it",
    "AccessDeniedException": "a permission is missing: restore it",
    "ResourceNotFoundException": "a table is missing: restore it",
}
"""Codes of AWS that are passed on unchanged, with those that operators are most likely to see. Others occur too."""

ANSWERS: Mapping[str, str] = {
    "UNSUPPORTED_EVENT": "the function does not process this event",
    "UNAVAILABLE": "the service cannot use its tables; its log says why",
    "QUEUE_UNAVAILABLE": "the order could not be sent to its queue; send it again",
    "BODY_TOO_LARGE": "the body has more than 262,144 bytes",
    "UNSUPPORTED_MEDIA_TYPE": "the `Content-Type` is not JSON",
    "INVALID_CURSOR": "`cursor` is not the `next` of an earlier answer",
    "NO_SUBJECT": "the token does not name its user",
    "OTHER_USER": "customers may only act for themselves",
    "OPERATORS_ONLY": "customers may not set this field",
    "NOT_PERMITTED": "the token lacks the `permission` that the route requires",
    "OTHER_LOCATION": "the token is limited to other locations",
    "UNKNOWN_ROUTE": "the API has no such route",
    "UNKNOWN_BARCODE": "no product or order has the scanned code",
    "BAD_CHECK_DIGIT": "the code's last digit does not fit the others: scan it again or, in `barcodes`, correct it",
    "VARIABLE_MEASURE": "the code has a price or a weight in it, and is not listed exactly like that",
    "AMBIGUOUS_BARCODE": "the code is the EAN-8 of one product and the UPC-E of another",
}
"""Codes that only answers to direct commands and API requests have."""

UNDELIVERABLE: Mapping[str, str] = {
    "UNKNOWN_ORDER_STATUS": "another program set a status that the service does not know",
    "UNREADABLE_ROW": "the row lacks an attribute that the event needs, or the attribute has the wrong type",
    "EVENT_TOO_LARGE": "the event is 1 MB or larger",
    "AWS_UNREACHABLE": "for an hour, no call with this event was answered, but others were",
}
"""`errorCode` in `UndeliverableEventsQueue`. All other codes come from EventBridge."""

BAD_LINES: Mapping[str, str] = {
    "PRODUCT_EXISTS": "the product exists with other attributes, named in the message; nothing was changed",
    "DUPLICATE_LINE": "another line creates or counts this product, has this `adjustmentId`, or changes the product at the "
    "same time; neither was loaded",
    "MOVED_SINCE_COUNT": "it is not known what came in or left after the count, or a newer count was booked; the message says which. "
    "Count again, or book the difference as a receipt or a loss",
    "UNSUPPORTED_ACTION": "unknown `action`",
    "ROUNDED_CODE": "a spreadsheet has rounded the code",
    "DATE_INSTEAD_OF_CODE": "the code is a date, into which a spreadsheet has probably converted it",
    "SPLIT_ORDER": "`send`: more rows of an order come after other orders, or with another `userId`",
    "BAD_ROW": "the row does not match the header",
    "NOT_UTF8": "the line is not in UTF-8",
}
"""Codes of `load` and `send`, in addition to the codes of dead letters, refusals and returned messages."""
