"""The queues, each with its own dead-letter queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from .removal import kept_in_production
from .settings import Settings

# The maximum of SQS: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
# sqs-configure-dead-letter-queue.html. A message that SQS moves loses its place in its group, so no outage may use up the
# deliveries: with the growing delays of returned messages, 1,000 of them last at least 5 days, and 8 on average.
# Functions' timeouts above 72 s leave fewer deliveries (below).
MAX_RECEIVE_COUNT = 1000

# Twice the size of the largest valid message, an order of 1,000 lines.
MAX_MESSAGE_BYTES = 262_144

# The maximum of SQS. A dead letter is the whole message with attributes, which count as well, and an event that the
# bus refuses may have as many bytes: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
MAX_DEAD_LETTER_BYTES = 1_048_576

# SQS deletes older messages without a dead letter. A standard dead-letter queue keeps the time at which the message
# was first sent, so its retention has to be longer: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
# sqs-dead-letter-queues.html
_RETENTION = Duration.days(10)
_DEAD_LETTER_RETENTION = Duration.days(14)


@dataclass(frozen=True)
class QueuePair:
    """A queue and its dead-letter queue."""

    queue: sqs.Queue
    dead_letters: sqs.Queue


class Queues(Construct):
    """All queues. They are encrypted and accept only requests over TLS.

    Attributes:
        all: The queues that feed functions, by name, each with its dead-letter queue.
        orders: `OrderQueue`.
        express: `OrderQueueExpress`; None without an API.
        expiries: `ExpiryQueue`.
        undeliverable_events: `UndeliverableEventsQueue`.
        unrecorded_movements: `UnrecordedMovementsQueue`; None without the setting `movements`.
    """

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.by_name: dict[str, sqs.Queue] = {}
        self.all: dict[str, QueuePair] = {}
        self.orders = self._pair("OrderQueue", "OrderDeadLetterQueue", "place_orders")
        if settings.fifo_queue:
            self._pair("OrderQueueFifo", "OrderFifoDeadLetterQueue", "place_orders", fifo=True)
        self.express = (
            self._pair("OrderQueueExpress", "OrderExpressDeadLetterQueue", "place_orders")
            if settings.api
            else None
        )
        self._pair("StockQueue", "StockDeadLetterQueue", "adjust_stock")
        self._pair("CatalogueQueue", "CatalogueDeadLetterQueue", "manage_products")
        self._pair("OrderCommandQueue", "OrderCommandDeadLetterQueue", "change_orders")
        self.expiries = self._pair("ExpiryQueue", "ExpiryDeadLetterQueue", "change_orders")
        self.undeliverable_events = self._queue(
            "UndeliverableEventsQueue", fifo=False, retention=_DEAD_LETTER_RETENTION
        )
        self.unrecorded_movements = (
            self._queue("UnrecordedMovementsQueue", fifo=False, retention=_DEAD_LETTER_RETENTION)
            if settings.movements
            else None
        )

    def _pair(
        self, name: str, dead_letter_name: str, function: str, *, fifo: bool = False
    ) -> QueuePair:
        dead_letters = self._queue(dead_letter_name, fifo=fifo, retention=_DEAD_LETTER_RETENTION)
        timeout = self._settings.functions[function].timeoutSeconds
        # AWS recommends six times the function's timeout, so that Lambda can retry a throttled invocation before the
        # messages become visible: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
        visibility = 6 * timeout + self._settings.queues[name].batchWindowSeconds
        # A message that kills its invocation returns after the visibility timeout. It has to use up its deliveries
        # before it expires, whatever the timeout.
        in_half_of_its_time = _RETENTION.to_seconds() // (2 * visibility)
        queue = self._queue(
            name,
            fifo=fifo,
            retention=_RETENTION,
            visibility=Duration.seconds(visibility),
            dead_letters=sqs.DeadLetterQueue(
                max_receive_count=min(MAX_RECEIVE_COUNT, in_half_of_its_time), queue=dead_letters
            ),
        )
        self.all[name] = QueuePair(queue, dead_letters)
        return self.all[name]

    def _queue(
        self,
        name: str,
        *,
        fifo: bool,
        retention: Duration,
        visibility: Duration | None = None,
        dead_letters: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            name,
            # High throughput mode: ordering and deduplication apply within a group, not within the queue.
            fifo=True if fifo else None,
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if fifo else None,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if fifo else None,
            # A corrected order has another body than the first one, so it is not dropped. Dead letters need explicit ids:
            # two messages with the same body are two dead letters.
            content_based_deduplication=True if fifo and dead_letters else None,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=retention,
            visibility_timeout=visibility,
            dead_letter_queue=dead_letters,
            max_message_size_bytes=MAX_MESSAGE_BYTES if dead_letters else MAX_DEAD_LETTER_BYTES,
            removal_policy=kept_in_production(self._settings),
        )
        # A queue that outlives its stack still rejects messages without TLS.
        policy = cast("sqs.QueuePolicy", queue.node.find_child("Policy"))
        policy.apply_removal_policy(kept_in_production(self._settings))
        self.by_name[name] = queue
        return queue
