"""Calls take as long as on AWS, and contention and capacity decide their outcome: benchmarks."""
