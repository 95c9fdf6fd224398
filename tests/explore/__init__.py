"""The exploration: real handlers under every schedule of a small world."""
