"""The tests, the exploration and the soak."""
