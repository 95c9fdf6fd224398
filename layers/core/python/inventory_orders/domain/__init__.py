"""The domain, without I/O: products, changes of stock, and the planner that decides them."""
