"""One caller after the other: unit tests."""
