"""Holds that end: found by the sweep, and sent to be expired."""
