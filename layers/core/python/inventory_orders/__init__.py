"""Inventory and orders on DynamoDB: concurrency control for stock that never oversells.

The engine for orders, cancellations and adjustments has three parts: `planner` decides (pure, no I/O), `committer`
makes it durable, `intake` answers message by message. Beside it stand the other ways of changing a product:
`products` (optimistic updates, guards, conditional deletes), `decrement` (atomic, without a read) and `lease`
(pessimistic). `model` holds the domain, `store` is the only code that talks to DynamoDB, `writer` sends and repeats.
"""
