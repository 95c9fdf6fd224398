"""Test library: the service's environment in memory, for tests, the exploration, the benchmarks and `make invoke`.

Start with `schedules.in_turn.shop`: `with open_shop() as shop:` opens a whole stack in virtual time.

| package | content |
|---|---|
| `shop`, `fixtures`, `samples` | what the wheel offers for tests of other code: docs/testing.md |
| `aws` | DynamoDB, SQS, streams and a bus in memory |
| `world` | `World`: tables, queues, clock and processes of the functions; faults, and what must hold |
| `schedules` | who moves next: `in_turn` (unit tests), `every` (exploration), `by_chance`, `by_time` (benchmarks) |
"""
