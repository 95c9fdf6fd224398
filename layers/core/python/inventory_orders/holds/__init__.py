"""Holds that are about to end, which the sweep sends to the expiry queue."""
