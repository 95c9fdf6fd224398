"""The endpoint of the embedded AWS: settings that point a process at it instead of a real account."""

from __future__ import annotations

import os
import ssl
import urllib.request

from local import STATE
from operations.aws import is_loopback
from operations.errors import UserError

REGION = "us-east-1"
ACCOUNT = "000000000000"

CERTIFICATE = STATE / "emulator" / "tmp" / "ministack-tls" / "server.crt"
"""The certificate that the embedded AWS creates if it uses TLS. Clients have to trust it."""


def opener_of(endpoint: str) -> urllib.request.OpenerDirector:
    """Create an opener without a proxy. It sends the embedded AWS those HTTP requests that AWS clients cannot send."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if endpoint.startswith("https:"):
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    return urllib.request.build_opener(*handlers)


def embedded_settings(endpoint: str) -> dict[str, str]:
    """Build the environment variables that point any AWS client at the embedded AWS, not at a real account.

    Raises:
        UserError: The endpoint is not on this machine.
    """
    if not is_loopback(endpoint):
        raise UserError(f"{endpoint} is not on this machine, so local commands do not use it")
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
    """Copy this process's environment, and replace its AWS settings with those of the embedded AWS."""
    environment = environment_without_aws() | embedded_settings(endpoint)
    # Requests to this machine must not go through a configured proxy.
    for name in ("NO_PROXY", "no_proxy"):
        others = environment.get(name)
        environment[name] = "127.0.0.1,localhost" + (f",{others}" if others else "")
    return environment


def environment_without_aws() -> dict[str, str]:
    """Copy this process's environment without its AWS settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


in_use: set[str] = set()
"""The endpoint of the embedded AWS that this process uses."""


def use_embedded(endpoint: str) -> None:
    """Point this process at the embedded AWS until it ends."""
    in_use.clear()
    in_use.add(endpoint)
    wanted = embedded_environment(endpoint)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
