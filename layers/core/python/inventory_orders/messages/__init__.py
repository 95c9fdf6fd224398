"""Parses messages and commands into changes. Explains what is wrong with an invalid one."""
