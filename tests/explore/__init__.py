"""The exploration: runs the real handlers with their AWS calls interleaved in every possible order."""
