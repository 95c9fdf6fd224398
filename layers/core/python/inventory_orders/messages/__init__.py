"""Parses messages and commands into changes, or explains why one is invalid."""
