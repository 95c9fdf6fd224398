"""The exploration, which runs the real handlers in every schedule of a few AWS calls."""
