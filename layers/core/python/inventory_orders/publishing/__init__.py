"""Publishes outcomes on the event bus, without losing any, and in sequence for each order."""
