"""The tokens that `inventory-orders tokens` prints.

As after `make up`, the embedded AWS does not enforce IAM.
"""

import urllib.error
import urllib.request
from types import SimpleNamespace

import boto3
import pytest

from local import emulator, tokens
from local.endpoint import REGION


@pytest.fixture
def running(data, monkeypatch):
    monkeypatch.setattr(tokens, "STATE", data.parent)
    started = emulator.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", started.endpoint)
    return started


@pytest.fixture
def address(running):
    """Create an HTTP API that requires a token, with a backend that answers."""
    gateway = boto3.client("apigatewayv2", region_name=REGION)
    api = {"ApiId": gateway.create_api(Name="customers", ProtocolType="HTTP")["ApiId"]}
    jwt = {"Issuer": tokens.SETTING["issuer"], "Audience": tokens.SETTING["audience"]}
    authorizer = gateway.create_authorizer(
        **api,
        Name="Jwt",
        AuthorizerType="JWT",
        IdentitySource=["$request.header.Authorization"],
        JwtConfiguration=jwt,
    )["AuthorizerId"]
    integration = gateway.create_integration(
        **api,
        IntegrationType="HTTP_PROXY",
        IntegrationMethod="GET",
        IntegrationUri=f"{running.endpoint}/_ministack",
        PayloadFormatVersion="1.0",
    )["IntegrationId"]
    gateway.create_route(
        **api,
        RouteKey="GET /ready",
        Target=f"integrations/{integration}",
        AuthorizationType="JWT",
        AuthorizerId=authorizer,
    )
    gateway.create_stage(**api, StageName="$default", AutoDeploy=True)
    return f"{running.endpoint}/_aws/execute-api/{api['ApiId']}/$default/ready"


def status(address, token):
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_embedded_aws_accepts_the_tokens_of_its_own_issuer(address):
    aws = SimpleNamespace(session=boto3.Session(region_name=REGION))
    customer, operator = tokens.customer_token(aws), tokens.operator_token(aws)
    assert [status(address, token) for token in (customer, operator)] == [200, 200]
    another = f"{operator.rpartition('.')[0]}.{customer.rpartition('.')[2]}"
    assert [status(address, token) for token in ("", another)] == [401, 401]
