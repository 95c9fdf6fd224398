"""The one error that the command line shows without a traceback."""


class UserError(Exception):
    """An error that a person can fix; the message says how."""
