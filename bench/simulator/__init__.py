"""The contention simulator: real handlers on simulated workers, in virtual time.

Start with `testing/simulated_aws/latency.py`, which describes the simulated rules.
"""
