"""The HTTP APIs: their routes, callers, limits and access log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from aws_cdk import ArnFormat, Aws, Fn, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from inventory_orders.domain.record import OrderAction

from .removal import kept_in_production
from .settings import Jwt, Settings

ROUTES = {
    "GET /about": "Api",
    "GET /today": "Api",
    "GET /changes": "Api",
    "POST /orders": "Api",
    "GET /orders": "Api",
    "GET /orders/{orderId}": "Api",
    "PATCH /orders/{orderId}": "Api",
    **{f"POST /orders/{{orderId}}/{action.path}": "Api" for action in OrderAction if action.path},
    "GET /barcodes": "Api",
    "GET /products": "Api",
    "POST /products": "ManageProducts",
    "GET /products/{productId}": "Api",
    "PATCH /products/{productId}": "ManageProducts",
    "DELETE /products/{productId}": "ManageProducts",
    "POST /products/{productId}/discontinue": "ManageProducts",
    "POST /products/{productId}/list-again": "ManageProducts",
    "GET /products/{productId}/adjustments": "Api",
    "POST /products/{productId}/adjustments": "AdjustStock",
    "POST /products/{productId}/transfers": "AdjustStock",
    "GET /products/{productId}/history": "Api",
    "GET /stock": "Api",
    "GET /stock/{productId}": "Api",
    "GET /transfers": "Api",
    "GET /counts": "Api",
    "POST /counts": "CountStock",
}
"""The routes, each with the function that answers. API Gateway answers 404 to all other requests."""

# No personal data: neither paths, which contain ids, nor addresses or callers.
LOGGED = {
    "requestId": "$context.requestId",
    "requestTime": "$context.requestTime",
    "routeKey": "$context.routeKey",
    "status": "$context.status",
    "responseLatency": "$context.responseLatency",
    "integrationLatency": "$context.integrationLatency",
    "responseLength": "$context.responseLength",
    "error": "$context.error.message",
    "integrationError": "$context.integrationErrorMessage",
    "authorizerError": "$context.authorizer.error",
}


def access_log(
    scope: Construct, settings: Settings, log_retention: logs.RetentionDays
) -> logs.LogGroup:
    """Create the log group for the access logs of both APIs."""
    return logs.LogGroup(
        scope,
        "ApiAccessLog",
        # Log groups with delivered logs share a policy of 5,120 characters per account. When it fills up, CloudWatch Logs makes
        # it cover all groups with this prefix: docs.aws.amazon.com/step-functions/latest/dg/bp-cwl.html. The end of the name is
        # unique to the stack, since a group may outlive its stack.
        log_group_name=Fn.join(
            "/",
            [f"/aws/vendedlogs/{settings.stack_name}", Fn.select(2, Fn.split("/", Aws.STACK_ID))],
        ),
        retention=log_retention,
        removal_policy=kept_in_production(settings),
    )


class Api(Construct):
    """An HTTP API of one stage. With a `jwt` issuer, callers need a token from it. Otherwise, they sign their requests."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: Settings,
        live: Mapping[str, lambda_.Alias],
        access_log: logs.LogGroup,
        jwt: Jwt | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.http_api = apigatewayv2.CfnApi(
            self,
            "HttpApi",
            # Only a label: callers need the API's id.
            name=settings.stack_name if jwt is None else f"{settings.stack_name}-customers",
            description=f"Inventory and orders, stage {settings.stage}",
            protocol_type="HTTP",
            cors_configuration=_cors(settings) if jwt is not None and settings.cors else None,
        )
        integrations = {
            name: self._integration(name, live[name]) for name in dict.fromkeys(ROUTES.values())
        }
        kind, authorizer = "AWS_IAM", None
        if jwt is not None:
            kind, authorizer = "JWT", self._authorizer(jwt)
        for route, name in ROUTES.items():
            self._route(route, integrations[name], kind, authorizer)
        self.stage = apigatewayv2.CfnStage(
            self,
            "Stage",
            api_id=self.http_api.ref,
            stage_name="$default",
            auto_deploy=True,
            default_route_settings=apigatewayv2.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=settings.api_limits.requestsPerSecond,
                throttling_burst_limit=settings.api_limits.burst,
            ),
            access_log_settings=apigatewayv2.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_log.log_group_arn, format=json.dumps(LOGGED)
            ),
        )

    def add_open_routes(
        self, name: str, live: lambda_.Alias, limits: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Let a function answer requests without a token.

        Args:
            name: The name of the function.
            live: Its alias.
            limits: Its routes, each with the limits of its requests per second, which do not count towards `apiLimits`.
        """
        integration = self._integration(name, live)
        for route in limits:
            made = self._route(route, integration, "NONE", None)
            # The stage is refused if it limits a route that does not exist.
            self.stage.add_dependency(made)
        self.stage.route_settings = {**limits}

    def _route(
        self,
        route: str,
        integration: apigatewayv2.CfnIntegration,
        kind: str,
        authorizer: str | None,
    ) -> apigatewayv2.CfnRoute:
        return apigatewayv2.CfnRoute(
            self,
            re.sub("[ /{}+]", "", route.replace("/", " ").title()),
            api_id=self.http_api.ref,
            route_key=route,
            target=f"integrations/{integration.ref}",
            authorization_type=kind,
            authorizer_id=authorizer,
        )

    def _integration(self, name: str, live: lambda_.Alias) -> apigatewayv2.CfnIntegration:
        live.add_permission(
            self.node.id,
            principal=iam.ServicePrincipal("apigateway.amazonaws.com"),
            source_arn=Stack.of(self).format_arn(
                service="execute-api",
                resource=self.http_api.ref,
                resource_name="*",
                arn_format=ArnFormat.SLASH_RESOURCE_NAME,
            ),
        )
        return apigatewayv2.CfnIntegration(
            self,
            f"{name}Integration",
            api_id=self.http_api.ref,
            integration_type="AWS_PROXY",
            integration_uri=live.function_arn,
            payload_format_version="2.0",
        )

    def _authorizer(self, jwt: Jwt) -> str:
        authorizer = apigatewayv2.CfnAuthorizer(
            self,
            "Authorizer",
            name="Jwt",
            api_id=self.http_api.ref,
            authorizer_type="JWT",
            identity_source=["$request.header.Authorization"],
            jwt_configuration=apigatewayv2.CfnAuthorizer.JWTConfigurationProperty(
                audience=list(jwt.audience), issuer=jwt.issuer
            ),
        )
        return authorizer.ref


def _cors(settings: Settings) -> apigatewayv2.CfnApi.CorsProperty:
    return apigatewayv2.CfnApi.CorsProperty(
        allow_origins=list(settings.cors),
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "If-Match", "If-None-Match", "Prefer"],
        expose_headers=["ETag", "Location", "Preference-Applied", "Retry-After"],
        max_age=3600,
    )
