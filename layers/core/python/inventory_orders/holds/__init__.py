"""Ending holds, which the sweep finds and sends to the expiry queue."""
