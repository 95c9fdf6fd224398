"""AWS prices for the measured usage: on-demand, us-east-1, in USD, without free tiers or discounts.

Sources: aws.amazon.com/dynamodb/pricing/on-demand (in force since 1 November 2024), aws.amazon.com/lambda/pricing
(arm64, first tier), aws.amazon.com/sqs/pricing (first tier), aws.amazon.com/cloudwatch/pricing (first tier; logs of the
standard class; alarms of the standard resolution; Contributor Insights for DynamoDB), aws.amazon.com/eventbridge/pricing
(Scheduler; custom events of up to 64 KB, delivered within the account). Lambda's reads of a stream are free:
docs.aws.amazon.com/amazondynamodb/latest/developerguide/CostOptimization_StreamsUsage.html
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
FREE_SQS_REQUESTS = _MILLION
SQS_FIFO_REQUEST = 0.50 / _MILLION
STORAGE_GIGABYTE_MONTH = 0.25
EXPORT_GIGABYTE = 0.10
RECOVERY_GIGABYTE_MONTH = 0.20
SCHEDULED_INVOCATION = 1.00 / _MILLION
EVENT = 1.00 / _MILLION
HTTP_REQUEST = 1.00 / _MILLION
LOG_GIGABYTE = 0.50
LOG_GIGABYTE_MONTH = 0.03
CUSTOM_METRIC_MONTH = 0.30
ALARM_MONTH = 0.10
DASHBOARD_MONTH = 3.00
INSIGHT_RULE_MONTH = 0.50

# The memory of place_orders in the stack. The other contenders load the same libraries, so they need as much.
MEMORY_GIGABYTES = 1.0


@dataclass(frozen=True, slots=True)
class Bill:
    """The usage that AWS bills.

    Attributes:
        write_units: Write units of DynamoDB, including the units for indexes.
        read_units: Read units of DynamoDB.
        invocations: Lambda invocations.
        seconds: Duration of all invocations together.
        messages: Messages sent to the queue, one per request.
        deliveries: Messages received and then deleted or returned.
        messages_per_poll: Messages per receive or delete request; at most 10.
        queue_requests: Requests that the handler sends to SQS.
        events: Events on the bus.
    """

    write_units: float
    read_units: float
    invocations: int
    seconds: float
    messages: int
    deliveries: int
    messages_per_poll: float
    queue_requests: int = 0
    events: int = 0

    @property
    def of_tables(self) -> float:
        """The price of reads and writes."""
        return self.write_units * WRITE_UNIT + self.read_units * READ_UNIT

    @property
    def of_functions(self) -> float:
        """The price of invocations."""
        return (
            self.invocations * LAMBDA_REQUEST
            + self.seconds * MEMORY_GIGABYTES * LAMBDA_GIGABYTE_SECOND
        )

    @property
    def of_queues(self) -> float:
        """The price of messages."""
        polls = 2 * self.deliveries / self.messages_per_poll
        return (self.messages + polls + self.queue_requests) * SQS_REQUEST

    @property
    def of_events(self) -> float:
        """The price of events."""
        return self.events * EVENT

    @property
    def dollars(self) -> float:
        """The total price."""
        return self.of_tables + self.of_functions + self.of_queues + self.of_events
