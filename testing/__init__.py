"""Test library: the service's environment in memory, for tests, the exploration, the benchmarks and `make invoke`.

Start with `schedules.in_turn.shop`: `with open_shop() as shop:` opens a whole stack in virtual time.

| package | content |
|---|---|
| `aws` | DynamoDB and SQS in memory |
| `world` | tables, queues, settings, handlers, clocks, faults, and what must hold |
| `schedules` | who moves next: `in_turn`, `every`, `by_time` |
"""
