"""Parses messages and commands into changes, and says what is wrong with an invalid one."""
