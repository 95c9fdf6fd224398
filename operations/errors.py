"""The errors that the command line shows without a traceback."""


class UserError(Exception):
    """An error that a person can fix; the message says how."""


class LostAnswerError(UserError):
    """A command was sent, and nothing says whether it was carried out."""
