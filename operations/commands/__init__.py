"""The commands of `inventory-orders` for operators of a deployed stack."""
