"""The command line of this project, `inventory-orders`."""
