"""A CDK app with the service, and with two functions that connect it to a Shopify shop."""

import json

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from inventory_orders_cdk import InventoryOrders

# The service's locations, and Shopify's. "" is the default location.
LOCATIONS = {"": "gid://shopify/Location/1"}

app = cdk.App()
stack = cdk.Stack(app, "ShopifyShop")
tea = InventoryOrders(stack, "Tea", name="shopify", hold_seconds=86_400, stock_events=True)
tea.add_outputs(prefix="Tea")

secret = secretsmanager.Secret.from_secret_name_v2(stack, "App", "shopify-app")
table = dynamodb.TableV2(
    stack,
    "NewestLevels",
    partition_key={"name": "product", "type": dynamodb.AttributeType.STRING},
    sort_key={"name": "location", "type": dynamodb.AttributeType.STRING},
)
shared = {
    "SHOP_URL": app.node.try_get_context("shop") or "https://example.myshopify.com",
    "SECRET_ID": secret.secret_name,
}


def function(name, seconds, environment):
    """Add a function of this example."""
    runtime, code = lambda_.Runtime.PYTHON_3_14, lambda_.Code.from_asset("functions")
    added = lambda_.Function(
        *(stack, name.title()),
        runtime=runtime,
        code=code,
        handler=f"{name}.handler",
        timeout=cdk.Duration.seconds(seconds),
        environment=shared | environment,
    )
    secret.grant_read(added)
    return added


queues = {
    "ORDER_QUEUE_URL": tea.queues["OrderQueue"],
    "COMMAND_QUEUE_URL": tea.queues["OrderCommandQueue"],
}
webhook = function("webhook", 5, {name: queue.queue_url for name, queue in queues.items()})
for queue in queues.values():
    queue.grant_send_messages(webhook)
url = webhook.add_function_url(auth_type=lambda_.FunctionUrlAuthType.NONE)
cdk.CfnOutput(stack, "WebhookUrl", value=url.url)

names = {"TABLE_NAME": table.table_name, "LOCATIONS": json.dumps(LOCATIONS), "BUFFER": "0"}
levels = function("levels", 60, names)
table.grant_read_write_data(levels)
dead = sqs.Queue(stack, "DeadEvents", enforce_ssl=True, retention_period=cdk.Duration.days(14))
changed = sqs.Queue(
    stack,
    "StockEvents",
    enforce_ssl=True,
    visibility_timeout=cdk.Duration.minutes(6),
    # Shopify may throttle for a long time, for example after a large import.
    dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=100),
)
rule = events.Rule(stack, "OnStock", event_bus=tea.bus)
rule.add_event_pattern(source=["inventory-orders"], detail_type=["ProductStockChanged"])
rule.add_target(targets.SqsQueue(changed))
levels.add_event_source(
    sources.SqsEventSource(changed, max_concurrency=2, report_batch_item_failures=True)
)
app.synth()
