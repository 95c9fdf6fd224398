"""The hosted desk: its routes in the API for customers, and its domain."""

from __future__ import annotations

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from .api import Api
from .desk_files import PAGE
from .settings import Desk

CONCURRENT_EXECUTIONS = 5
"""The executions that are reserved for the function. It cannot use more, so a flood of requests for files starves no other
function."""

_FILES = {"ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 50}
_REPORTS = {"ThrottlingRateLimit": 1, "ThrottlingBurstLimit": 5}
ROUTES = {
    "GET /desk": _FILES,
    "GET /desk/{file+}": _FILES,
    "POST /desk/reports": _REPORTS,
}
"""The routes of the desk in the API for customers, each with its limit per second. None has an authorizer, because browsers
request files without a token. The limits are separate, so that these requests do not use up those of the API."""


class HostedDesk(Construct):
    """The desk in the API for customers.

    Attributes:
        url: The address of its page, to which the issuer sends people back.
        domain_target: The name to which the DNS name of the domain must point; None without a domain.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        desk: Desk,
        api: Api,
        live: lambda_.Alias,
    ) -> None:
        super().__init__(scope, construct_id)
        api.add_open_routes("ServeDesk", live, ROUTES)
        self.domain_target: str | None = None
        address = api.http_api.attr_api_endpoint
        if desk.domain is not None:
            address = f"https://{desk.domain.name}"
            domain = apigatewayv2.CfnDomainName(
                self,
                "Domain",
                domain_name=desk.domain.name,
                domain_name_configurations=[
                    apigatewayv2.CfnDomainName.DomainNameConfigurationProperty(
                        certificate_arn=desk.domain.certificate,
                        endpoint_type="REGIONAL",
                        security_policy="TLS_1_2",
                    )
                ],
            )
            apigatewayv2.CfnApiMapping(
                self,
                "Mapping",
                api_id=api.http_api.ref,
                domain_name=domain.ref,
                stage=api.stage.ref,
            )
            self.domain_target = domain.attr_regional_domain_name
        self.url = f"{address}/desk/{PAGE}"
