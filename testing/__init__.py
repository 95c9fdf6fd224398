"""Test library: the service's surroundings in memory, for tests, the exploration, the benchmarks and `make invoke`.

Begin with `shop`: `with open_shop() as shop:` is a whole stack in virtual time.

| module | has |
|---|---|
| `shop` | a shop: its tables, queues, bus, time, workers and handlers |
| `simulated_aws` | DynamoDB and SQS in memory, virtual time, contention, latency |
| `tables` | the service's tables and queues, on any implementation of AWS |
| `handlers` | the functions' handlers, and the context that Lambda passes to them |
| `events` | events of SQS, bodies of messages |
| `streams` | changes of rows, a fake bus, the poller of a shard |
| `clocks` | clocks that are wrong, in a hurry, or only move when code sleeps |
| `faults` | lost responses |
| `bench` | a shop whose engine meets faults in single requests |
| `lanes` | a shop that sells from lanes, and units in lanes as a rival or an operator moves them |
"""
