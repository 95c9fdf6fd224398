"""Test library: the service's environment in memory, for tests, the exploration, the benchmarks and `make invoke`.

Start with `shop`: `with open_shop() as shop:` opens a whole stack in virtual time.

| module | content |
|---|---|
| `shop` | a shop: its tables, queues, bus, time, workers and handlers |
| `simulated_aws` | DynamoDB and SQS in memory, virtual time, contention, latency |
| `tables` | the service's tables and queues, on any implementation of AWS |
| `handlers` | the functions' handlers, and the context that Lambda passes to them |
| `events` | SQS events, message bodies |
| `streams` | stream records, a fake event bus, the poller of a shard |
| `clocks` | clocks that are wrong, run fast, or only move when code sleeps |
| `faults` | lost responses |
| `bench` | a shop that injects faults into single requests of its engine |
| `lanes` | a shop that sells from lanes, and functions that act as concurrent writers or operators |
"""
