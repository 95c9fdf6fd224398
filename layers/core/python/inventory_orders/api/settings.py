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
        user_id_claim: `USER_ID_CLAIM`: the claim of a token that says whose it is; None where no token is taken.
        operators_claim: `OPERATORS_CLAIM_NAME` and `OPERATORS_CLAIM_VALUE`: the claim of a token that may call
            every route; None where no token may.
        shows_numbers: `SHOW_STOCK`: whether products are shown with their units (`numbers`), and not only whether
            they are to be had (`availability`).
    """

    user_id_claim: str | None
    operators_claim: tuple[str, str] | None
    shows_numbers: bool

    @classmethod
    @cache
    def from_environment(cls) -> ApiSettings:
        """Read the settings, once.

        Raises:
            ConfigurationError: One is missing or wrong.
        """
        shown = os.environ.get("SHOW_STOCK")
        if shown not in ("numbers", "availability"):
            what = "not set" if shown is None else repr(shown)
            raise ConfigurationError(
                f"the environment variable SHOW_STOCK is {what}; it must be numbers or availability"
            )
        name, value = (os.environ.get(f"OPERATORS_CLAIM_{part}", "") for part in ("NAME", "VALUE"))
        return cls(
            user_id_claim=os.environ.get("USER_ID_CLAIM"),
            operators_claim=(name, value) if name and value else None,
            shows_numbers=shown == "numbers",
        )
