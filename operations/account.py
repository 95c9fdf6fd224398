"""The AWS account of the environment, which commands look up before they begin anything slow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from operations.aws import refuse_loopback
from operations.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_account(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment has credentials for a real account: it does not point at this machine."""
    try:
        refuse_loopback(environment)
        return boto3.Session().get_credentials() is not None
    except UserError:
        return False
    except BotoCoreError:
        # The credentials exist and cannot be read: `AwsAccount` says why.
        return True


@dataclass(frozen=True)
class AwsAccount:
    """The account and region that a command acts on.

    Attributes:
        session: Has credentials and a region.
        region: The region's name, such as `eu-west-1`.
    """

    session: boto3.Session
    region: str

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> AwsAccount:
        """Find credentials and region where AWS's own tools look for them. Sends no request.

        Raises:
            UserError: One of them is missing, or the environment points at this machine.
        """
        refuse_loopback(environment)
        # The CDK and version 2 of the AWS CLI prefer AWS_REGION; boto3 does not read it.
        region = environment.get("AWS_REGION") or None
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
            raise UserError("there is no AWS region: set AWS_REGION, such as AWS_REGION=eu-west-1")
        return cls(session, session.region_name)

    def client(self, service: str) -> Any:
        """Make a client that gives up soon, because a person waits for the answer."""
        config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
        # The stubs want the service's name as a literal.
        return self.session.client(service, config=config)  # type: ignore[call-overload]

    def number(self) -> str:
        """Ask AWS for the number of the account.

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
                f"AWS does not say which account these credentials belong to: {error}"
            ) from error
