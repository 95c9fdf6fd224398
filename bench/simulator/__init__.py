"""The contention simulator: real handlers on simulated workers, in virtual time.

Start with `testing/schedules/by_time/latency.py`, which describes the simulated rules.
"""
