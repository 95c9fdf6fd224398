"""Inventory and orders on DynamoDB: concurrency control that never oversells stock.

`domain` decides without I/O: products, stock changes, and the planner. `store` is the only part that talks to
DynamoDB. `engine` makes a plan durable, exactly once, despite concurrent writers; `lanes` chooses where units are sold
from. `products` has the other ways to change a product, `holds` expires unpaid orders, and `publishing` publishes events.
`messages` parses messages, and `invocation` and `api` turn an invocation into changes and answers.
"""
