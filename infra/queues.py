"""The queues, each with a dead-letter queue of its own."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.settings import Settings

# With the growing delays of returned messages, 20 deliveries take at least 19 minutes. The longest lease takes 15.
MAX_RECEIVE_COUNT = 20


@dataclass(frozen=True)
class QueuePair:
    """A queue and its dead-letter queue."""

    queue: sqs.Queue
    dead_letters: sqs.Queue


class Queues(Construct):
    """All queues: encrypted, and reachable over TLS only."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.orders = self._pair("OrderQueue", "OrderDeadLetterQueue", "place_orders")
        self.orders_fifo = self._pair(
            "OrderQueueFifo", "OrderFifoDeadLetterQueue", "place_orders", fifo=True
        )
        self.stock = self._pair("StockQueue", "StockDeadLetterQueue", "adjust_stock")
        self.cancellations = self._pair(
            "CancellationQueue", "CancellationDeadLetterQueue", "cancel_orders"
        )
        self.catalogue = self._pair("CatalogueQueue", "CatalogueDeadLetterQueue", "manage_products")

    @property
    def all(self) -> dict[str, QueuePair]:
        """The queues by name."""
        return {
            "OrderQueue": self.orders,
            "OrderQueueFifo": self.orders_fifo,
            "StockQueue": self.stock,
            "CancellationQueue": self.cancellations,
            "CatalogueQueue": self.catalogue,
        }

    def _pair(
        self, name: str, dead_letter_name: str, function: str, *, fifo: bool = False
    ) -> QueuePair:
        dead_letters = self._queue(dead_letter_name, fifo=fifo, retention=Duration.days(14))
        timeout = self._settings.functions[function].timeoutSeconds
        window = self._settings.queues[name].batchWindowSeconds
        queue = self._queue(
            name,
            fifo=fifo,
            # What is not processed by then is deleted, not dead-lettered. A standard dead-letter queue keeps the time of
            # the first sending, so its 14 days have to be longer: docs.aws.amazon.com/AWSSimpleQueueService/latest/
            # SQSDeveloperGuide/sqs-dead-letter-queues.html
            retention=Duration.days(10),
            # AWS recommends six times the function's timeout, so that Lambda can retry a throttled invocation before
            # its messages become visible: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
            visibility=Duration.seconds(6 * timeout + window),
            dead_letters=sqs.DeadLetterQueue(
                max_receive_count=MAX_RECEIVE_COUNT, queue=dead_letters
            ),
        )
        return QueuePair(queue, dead_letters)

    def _queue(
        self,
        name: str,
        *,
        fifo: bool,
        retention: Duration,
        visibility: Duration | None = None,
        dead_letters: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            name,
            # High throughput mode: ordering and deduplication apply within a group, not within the queue.
            fifo=True if fifo else None,
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if fifo else None,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if fifo else None,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=retention,
            visibility_timeout=visibility,
            dead_letter_queue=dead_letters,
            removal_policy=(
                RemovalPolicy.RETAIN if self._settings.is_production else RemovalPolicy.DESTROY
            ),
        )
