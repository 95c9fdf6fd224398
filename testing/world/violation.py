"""Violations of the invariants."""


class ViolationError(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, message: str) -> None:
    """Check an invariant.

    Raises:
        ViolationError: The invariant does not hold.
    """
    if not holds:
        raise ViolationError(message)
