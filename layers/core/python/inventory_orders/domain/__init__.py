"""The domain, without I/O: products, stock changes, and the planner that decides them."""
