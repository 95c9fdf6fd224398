"""Inventory and orders on DynamoDB: concurrency control for stock that never oversells.

`domain` decides without I/O: products, changes of stock, and the planner. `store` is the only part that talks to
DynamoDB. `engine` makes a plan durable, exactly once, among rivals; `lanes` says where units are sold from. `products`
holds the other ways to change a product, `holds` ends what is not paid, `publishing` tells what has changed. `messages`
reads what senders wrote, and `invocation` and `api` turn an invocation into changes and answers.
"""
