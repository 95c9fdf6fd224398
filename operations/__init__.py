"""Operators' commands, for the stack of an AWS account or of the embedded AWS."""
