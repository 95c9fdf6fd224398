"""The contention simulator: real handlers on simulated workers, in virtual time. Start reading in `model.py`."""
