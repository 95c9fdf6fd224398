"""Permissions of a caller, from what API Gateway has verified, and the settings that they follow from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from inventory_orders.api.requests import ProblemError
from inventory_orders.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The environment variables of the API's function, in addition to those that all functions have.

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


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        customer: The customer's user id; None for an operator, which may call every route.
        sees_numbers: Whether a rejection says how many units there are.
        name: The actor in the records of the caller's commands: the user id that the token names, or the role and its
            session.
    """

    customer: str | None
    sees_numbers: bool = True
    name: str = ""

    @classmethod
    def of(cls, authorizer: Mapping[str, Any], settings: ApiSettings) -> Caller:
        """The caller, from what API Gateway has verified.

        Raises:
            ProblemError: There is neither a signature nor a token that names a user.
        """
        if authorizer.get("iam"):
            return cls(None, name=_role(authorizer["iam"].get("userArn", "")))
        claims = authorizer.get("jwt", {}).get("claims", {})
        if settings.operators_claim is not None:
            name, value = settings.operators_claim
            if _says(claims.get(name), value):
                return cls(None, name=str(claims.get(settings.user_id_claim, ""))[:_MAX_NAME])
        user_id = claims.get(settings.user_id_claim)
        if not isinstance(user_id, str) or not user_id:
            detail = f"the token does not say whose it is ({settings.user_id_claim})"
            raise ProblemError(403, "NO_SUBJECT", detail)
        return cls(user_id, settings.shows_numbers)

    def acts_for(self, user_id: str | None) -> bool:
        """Whether the caller may act for a user, and see the user's orders."""
        return self.customer in (None, user_id)

    def check_is(self, user_id: str, what: str) -> None:
        """Check that the caller may act for a user.

        Args:
            user_id: The user.
            what: What customers do for themselves alone, in words.

        Raises:
            ProblemError: The caller is another customer. The answer does not reveal whether the user exists.
        """
        if not self.acts_for(user_id):
            detail = f"userId: customers {what}; it must be your own id"
            raise ProblemError(403, "OTHER_USER", detail)

    def check_may_operate(self) -> None:
        """Check that the caller may do what operators do.

        Raises:
            ProblemError: The caller is a customer.
        """
        if self.customer is not None:
            raise ProblemError(403, "OPERATORS_ONLY", "only operators may do this")


_MAX_NAME = 128


def _role(arn: str) -> str:
    """The end of the ARN of a user or of a role's session, which identifies it within the account."""
    return arn.partition("/")[2][-_MAX_NAME:] or arn[-_MAX_NAME:]


def _says(claim: object, value: str) -> bool:
    """Whether a claim is a value, or holds it: API Gateway hands a list over as a text such as `[staff operators]`."""
    if isinstance(claim, list):
        return value in claim
    text = str(claim).lower() if isinstance(claim, bool) else str(claim)
    in_list = re.fullmatch(r"\[(.*)\]", text, re.DOTALL)
    return value in re.split(r"[\s,]+", in_list[1]) if in_list else text == value
