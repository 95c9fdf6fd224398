"""Reads messages and commands as changes, or says why one can never be a change."""
