"""The HTTP API: who may send which requests, and the answers."""
