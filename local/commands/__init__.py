"""The commands of `inventory-orders` that need a checkout: they deploy it, or run it on this machine."""
