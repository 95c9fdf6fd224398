"""Bugs that the tests must catch."""
