"""Inventory and orders on DynamoDB: concurrency control for stock that never oversells.

The engine has three parts, each in a module of its own: `planner` decides (pure, no I/O), `committer`
makes it durable, `intake` answers message by message. `model` holds the domain, `store` the only code
that talks to DynamoDB.
"""
