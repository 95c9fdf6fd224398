"""The commands of `inventory-orders` that need a checkout, because they deploy it or run it on this machine."""
