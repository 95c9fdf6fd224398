"""The HTTP API: its routes, who may call them, and how it answers."""
