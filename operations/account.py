"""The AWS account of the environment, which commands look up before they start anything slow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .aws import refuse_loopback
from .errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_account(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment has credentials for a real account, and does not point at this machine."""
    try:
        refuse_loopback(environment)
        return boto3.Session().get_credentials() is not None
    except UserError:
        return False
    except BotoCoreError:
        # There are credentials, but they cannot be read: `AwsAccount` reports the reason.
        return True


@dataclass(frozen=True)
class AwsAccount:
    """The account and region that a command acts on.

    Attributes:
        session: The boto3 session, with credentials and a region.
        region: The region's name, such as `eu-west-1`.
    """

    session: boto3.Session
    region: str

    @classmethod
    def of_environment(cls, *, anywhere: bool = False) -> AwsAccount:
        """Find credentials and a region in the places where AWS's tools look for them, without sending a request.

        Args:
            anywhere: Whether the environment may point at this machine.

        Raises:
            UserError: The credentials or the region are missing, or the environment points at this machine.
        """
        if not anywhere:
            refuse_loopback(os.environ)
        # The CDK and version 2 of the AWS CLI prefer AWS_REGION; boto3 ignores it.
        region = os.environ.get("AWS_REGION") or None
        try:
            session = boto3.Session(region_name=region)
            credentials = session.get_credentials()
        except BotoCoreError as error:
            raise UserError(f"the AWS credentials cannot be read: {error}") from error
        if credentials is None:
            raise UserError(
                "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not session.region_name:
            raise UserError(
                "no AWS region is configured: set AWS_REGION, for example AWS_REGION=eu-west-1"
            )
        return cls(session, session.region_name)

    def client(self, service: str, region: str | None = None) -> Any:
        """Create a client with short timeouts, because a user is waiting; by default, for this region."""
        config = Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        # The type stubs need the service's name as a literal.
        return self.session.client(  # type: ignore[call-overload]
            service, region_name=region, config=config
        )

    def number(self) -> str:
        """Ask AWS for the account number.

        Raises:
            UserError: AWS does not accept the credentials, or does not answer.
        """
        try:
            return str(self.client("sts").get_caller_identity()["Account"])
        except ClientError as error:
            reason = error.response["Error"]
            raise UserError(
                f"AWS does not accept these credentials ({reason['Code']}: {reason['Message']}): renew them, "
                "or choose others with AWS_PROFILE"
            ) from error
        except BotoCoreError as error:
            raise UserError(
                f"cannot find out which account these credentials belong to: {error}"
            ) from error
