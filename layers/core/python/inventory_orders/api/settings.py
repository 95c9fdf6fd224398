"""The settings of the API, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from inventory_orders.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The environment variables that the stack gives to the API's function, beside those of all functions.

    Attributes:
        customers: `CALLERS`: whether callers are customers with a token (`jwt`), and not callers with a signature
            (`iam`), who may do all.
        operators_claim: `OPERATORS_CLAIM_NAME` and `OPERATORS_CLAIM_VALUE`: the claim of a token that may call
            every route; None where no token may.
        shows_numbers: `SHOW_STOCK`: whether products are shown with their units (`numbers`), and not only whether
            they are to be had (`availability`).
    """

    customers: bool
    operators_claim: tuple[str, str] | None
    shows_numbers: bool

    @classmethod
    @cache
    def from_environment(cls) -> ApiSettings:
        """Read the settings, once.

        Raises:
            ConfigurationError: One is missing or wrong.
        """

        def one_of(name: str, *known: str) -> str:
            value = os.environ.get(name)
            if value is None:
                raise ConfigurationError(f"the environment variable {name} is not set")
            if value not in known:
                raise ConfigurationError(
                    f"the environment variable {name} is {value!r}; it must be {' or '.join(known)}"
                )
            return value

        name, value = (os.environ.get(f"OPERATORS_CLAIM_{part}", "") for part in ("NAME", "VALUE"))
        return cls(
            customers=one_of("CALLERS", "iam", "jwt") == "jwt",
            operators_claim=(name, value) if name and value else None,
            shows_numbers=one_of("SHOW_STOCK", "numbers", "availability") == "numbers",
        )
