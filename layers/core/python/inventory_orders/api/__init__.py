"""The HTTP API: what may be asked by whom, and how it is answered."""
