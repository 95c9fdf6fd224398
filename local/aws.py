"""Which AWS is talked to: the embedded one, or the account of the caller's environment. Never one by mistake."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local import STATE
from local.process import LocalError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_sqs import SQSClient

REGION = "us-east-1"
ACCOUNT = "000000000000"

CERTIFICATE = STATE / "emulator" / "tmp" / "ministack-tls" / "server.crt"
"""Made by the embedded AWS when it speaks TLS; clients have to be told to trust it."""


def is_loopback(endpoint: str) -> bool:
    """Whether a URL leads to this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    addresses = [ipaddress.ip_address(address.split("%")[0]) for address in found]
    return any(_is_here(address) for address in addresses)


def _is_here(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def opener_of(endpoint: str) -> urllib.request.OpenerDirector:
    """What asks the embedded AWS things that no AWS client can: without any proxy, this machine talks to itself."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if endpoint.startswith("https:"):
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    return urllib.request.build_opener(*handlers)


def embedded_settings(endpoint: str) -> dict[str, str]:
    """What points any AWS client at the embedded AWS, and away from every real account.

    Raises:
        LocalError: The endpoint is not on this machine.
    """
    if not is_loopback(endpoint):
        raise LocalError(f"{endpoint} is not on this machine; local commands refuse to use it")
    trust = {"AWS_CA_BUNDLE": str(CERTIFICATE), "NODE_EXTRA_CA_CERTS": str(CERTIFICATE)}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        **(trust if endpoint.startswith("https:") else {}),
    }


def embedded_environment(endpoint: str) -> dict[str, str]:
    """The caller's environment without any AWS setting of theirs, pointed at the embedded AWS."""
    environment = environment_without_aws() | embedded_settings(endpoint)
    # A proxy of the caller's must not stand between this machine and itself.
    for name in ("NO_PROXY", "no_proxy"):
        others = environment.get(name)
        environment[name] = "127.0.0.1,localhost" + (f",{others}" if others else "")
    return environment


def environment_without_aws() -> dict[str, str]:
    """The caller's environment without any AWS setting."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def use_embedded(endpoint: str) -> None:
    """Point this process at the embedded AWS for good."""
    wanted = embedded_environment(endpoint)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def refuse_loopback(environment: Mapping[str, str]) -> None:
    """Make sure that the environment means a real account.

    Raises:
        LocalError: It points at an emulator.
    """
    for name, value in environment.items():
        if name.startswith("AWS_ENDPOINT_URL") and is_loopback(value):
            raise LocalError(
                f"{name} points at this machine ({value}); this command is for a real account. "
                f"Unset it and try again"
            )


@dataclass(frozen=True)
class Aws:
    """Clients for the AWS that this process points at, and the stack's outputs there.

    Attributes:
        outputs: By name, as in DESIGN; empty values do not occur.
    """

    outputs: Mapping[str, str]
    dynamodb: DynamoDBClient
    sqs: SQSClient
    logs: CloudWatchLogsClient
    functions: LambdaClient

    @classmethod
    def of_stack(cls, stack_name: str) -> Aws:
        """Look a stack up.

        Raises:
            LocalError: There is no such stack, or no access to it.
        """
        config = Config(
            connect_timeout=5,
            read_timeout=60,
            retries={"total_max_attempts": 5, "mode": "standard"},
            max_pool_connections=32,
        )
        try:
            session = boto3.Session()
            cloudformation: CloudFormationClient = session.client("cloudformation", config=config)
            stack = cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]
            return cls(
                outputs={output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]},
                dynamodb=session.client("dynamodb", config=config),
                sqs=session.client("sqs", config=config),
                logs=session.client("logs", config=config),
                functions=session.client("lambda", config=config),
            )
        except (BotoCoreError, ClientError, KeyError, IndexError) as error:
            raise LocalError(
                f"the stack {stack_name} cannot be read: {error}. Deploy it first (`make up` on this machine, "
                f"`make deploy STAGE=...` on an account)"
            ) from error
