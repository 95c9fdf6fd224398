"""Violations of what every schedule has to keep."""


class ViolationError(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, message: str) -> None:
    """Check an invariant.

    Raises:
        ViolationError: It does not hold.
    """
    if not holds:
        raise ViolationError(message)
