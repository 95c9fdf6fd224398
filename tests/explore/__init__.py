"""The exploration: runs the real handlers in every schedule of a small world."""
