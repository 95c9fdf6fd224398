"""The one error that the command line shows without a traceback."""


class UserError(Exception):
    """Something that a person can act upon; the message says how."""
