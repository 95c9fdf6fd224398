"""Errors that the command line shows without a traceback."""


class UserError(Exception):
    """An error that the user can fix. Its message says how."""


class LostAnswerError(UserError):
    """A command was sent, and it is unknown whether it was carried out."""
