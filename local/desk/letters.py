"""Reads dead letters, and sends them again or deletes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.order_command import DEFAULT_TERMS
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import (
    parse_adjustment,
    parse_catalogue_event,
    parse_expiry,
    parse_order_command,
    parse_order_or_amend,
)
from inventory_orders.messages.documents import json_schema
from operations import queues, redrive
from operations.aws import Aws
from operations.codes import DEAD_LETTERS, Redrive
from operations.dead_letters import POLL_SECONDS, peek_dead_letters, read_dead_letters
from operations.errors import UserError

Document = dict[str, Any]

MOST_DEAD_LETTERS = 100
"""The desk reads at most this many dead letters of each queue."""


_ORDER = (
    json_schema("order"),
    lambda body: parse_order_or_amend(body, None, None, ("", ""), DEFAULT_TERMS),
)
_MESSAGES: Mapping[str, tuple[Document, Callable[[str], object]]] = {
    **dict.fromkeys(queues.OF_ORDERS, _ORDER),
    queues.STOCK: (json_schema("adjustment"), parse_adjustment),
    queues.CATALOGUE: (
        json_schema("catalogue_event"),
        lambda body: parse_catalogue_event(body, datetime.now(UTC)),
    ),
    queues.COMMANDS: (json_schema("commands")["change_orders"], parse_order_command),
    queues.EXPIRIES: (json_schema("expiry"), lambda body: parse_expiry(body, datetime.now(UTC))),
}
"""The schema of each queue's messages (for commands, one for each action), and the parser that the service uses."""


class NotFoundError(UserError):
    """What a request names does not exist."""


class Letters:
    """The dead letters of the stack that `stack` returns. The stack may be deployed again at any time."""

    def __init__(self, stack: Callable[[], Aws]) -> None:
        self._stack = stack
        # One request at a time reads dead letters, because SQS hides messages from other readers.
        self._lock = Lock()

    def depths(self) -> dict[str, int]:
        """Count the dead letters in each queue."""
        aws = self._stack()
        return {name: queues.depth(aws, name).total for _, name in queues.pairs(aws)}

    def counted(self) -> Document:
        """Count dead letters by cause. Empty queues are not read, because reading one takes a second."""
        aws, depths, causes = self._stack(), self.depths(), Counter[str]()
        with self._lock:
            for queue, depth in depths.items():
                if depth:
                    most = min(depth, MOST_DEAD_LETTERS)
                    found = peek_dead_letters(aws.sqs, aws.outputs[queue], most, POLL_SECONDS)
                    causes.update(letter.code for letter in found)
        shown = (
            {
                "code": code,
                "count": count,
                "meaning": getattr(DEAD_LETTERS.get(code), "meaning", ""),
            }
            for code, count in causes.most_common()
        )
        return {"count": sum(depths.values()), "causes": [*shown]}

    def listed(self) -> Document:
        """List the dead letters of all queues, and explain their causes.

        The answer also has the `schemas` of the queues' messages, and says which queues have `more` dead letters, and why.
        """
        aws = self._stack()
        with self._lock:
            by_queue, more = read_dead_letters(aws, MOST_DEAD_LETTERS)
        pairs = queues.pairs(aws)
        names = {queue: source.removesuffix("Url") for source, queue in pairs}
        letters = [
            {
                "queue": queue,
                "source": names[queue],
                "messageId": delivery.message_id,
                "originalMessageId": delivery.content.original_message_id,
                "group": delivery.group,
                "sentAt": timestamp(datetime.fromtimestamp(delivery.sent_at / 1000, UTC)),
                "code": delivery.content.code,
                "message": delivery.content.message,
                "body": delivery.content.body,
                "orderIds": delivery.content.order_ids,
            }
            for queue, found in by_queue.items()
            for delivery in found
        ]
        causes = {
            code: {"meaning": meaning, "repair": repair, "mayHelp": again is not Redrive.NEVER}
            for code, (meaning, repair, again) in DEAD_LETTERS.items()
        }
        left = [
            {"queue": names[queue], "listed": len(by_queue[queue]), "why": why}
            for queue, why in more.items()
        ]
        schemas = {names[queue]: _MESSAGES[source][0] for source, queue in pairs}
        return {"deadLetters": letters, "causes": causes, "schemas": schemas, "more": left}

    def settle(self, request: Mapping[str, Any]) -> Document:
        """Send one dead letter back to the queue that it came from (`action` is `redrive`), or delete it (`delete`).

        If the request has a `body`, send that instead of the original, unless the service would refuse it: then the answer has
        the `code`, `message` and `field` of the reason, and is not `done`. If the message was sent, the answer has its
        `messageId` in the queue.
        """
        aws, queue, action = self._stack(), request.get("queue"), request.get("action")
        sources = {letters: source for source, letters in queues.pairs(aws)}
        if queue not in sources or action not in ("redrive", "delete"):
            raise UserError(
                "the desk can resend or delete only dead letters of this stack's queues"
            )
        body = request.get("body")
        if body is not None:
            try:
                _MESSAGES[sources[queue]][1](body)
            except InvalidMessageError as error:
                refused = {"code": error.code, "message": error.message, "field": error.field}
                return {"done": False, **refused}
        source = aws.outputs[sources[queue]] if action == "redrive" else None
        letter = str(request.get("messageId"))
        with self._lock:
            sent = redrive.settle(aws.sqs, aws.outputs[queue], letter, source, body)
        if sent is None:
            raise NotFoundError(
                "the message is not in the dead-letter queue at the moment: it was resent or deleted, or another reader has "
                "it for up to two minutes"
            )
        return {"done": True, "messageId": sent}
