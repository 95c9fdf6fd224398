"""What AWS asks for what was measured: public on-demand prices in us-east-1, in USD, without free tiers and discounts.

Sources: aws.amazon.com/dynamodb/pricing/on-demand (in force since 1 November 2024), aws.amazon.com/lambda/pricing
(arm64, first tier), aws.amazon.com/sqs/pricing (standard queues, first tier).
"""

from __future__ import annotations

from dataclasses import dataclass

AS_OF = "2026-06-30"
REGION = "us-east-1"

_MILLION = 1_000_000
WRITE_UNIT = 0.625 / _MILLION
READ_UNIT = 0.125 / _MILLION
LAMBDA_REQUEST = 0.20 / _MILLION
LAMBDA_GIGABYTE_SECOND = 0.0000133334
SQS_REQUEST = 0.40 / _MILLION
STORAGE_GIGABYTE_MONTH = 0.25
RECOVERY_GIGABYTE_MONTH = 0.20

# As the stack sets it for place_orders. The others need no less: their processes hold the same libraries.
MEMORY_GIGABYTES = 1.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What was used.

    Attributes:
        write_units: DynamoDB, those of the index included.
        read_units: DynamoDB.
        invocations: Lambda.
        seconds: Lambda: all invocations together.
        messages: Sent to the queue, each in a request of its own.
        deliveries: Messages received and then deleted or returned.
        messages_per_poll: At most 10 fit into a request that receives or deletes.
        queue_requests: That the handler itself made.
    """

    write_units: float
    read_units: float
    invocations: int
    seconds: float
    messages: int
    deliveries: int
    messages_per_poll: int
    queue_requests: int = 0

    @property
    def dollars(self) -> float:
        """What all of it costs."""
        polls = 2 * self.deliveries / self.messages_per_poll
        return (
            self.write_units * WRITE_UNIT
            + self.read_units * READ_UNIT
            + self.invocations * LAMBDA_REQUEST
            + self.seconds * MEMORY_GIGABYTES * LAMBDA_GIGABYTE_SECOND
            + (self.messages + polls + self.queue_requests) * SQS_REQUEST
        )
