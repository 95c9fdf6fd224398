"""Publishes events on the event bus: every event at least once, and in sequence for each order."""
