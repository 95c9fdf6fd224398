"""The contention simulator: real handlers on simulated workers, in virtual time.

Start reading in `simulated_aws/latency.py`: it says what is simulated.
"""
