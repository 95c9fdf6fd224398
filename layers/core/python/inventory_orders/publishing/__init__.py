"""Publishes outcomes on the event bus: none lost, those of one order in their order."""
