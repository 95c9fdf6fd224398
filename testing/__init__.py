"""Test library: the service's surroundings in memory, for tests, the exploration, the benchmarks and `make invoke`.

| module | has |
|---|---|
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
