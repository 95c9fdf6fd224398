"""Seeded runs of a whole shop in virtual time: many workers, staff and customers, and faults of every kind."""
