"""A CDK app with two services in one stack: one for tea, with holds and two warehouses, and a cheaper one for seats."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from inventory_orders_cdk import InventoryOrders

app = cdk.App()
stack = cdk.Stack(app, "Shop")
tea = InventoryOrders(stack, "Tea", name="tea", hold_seconds=900, locations=["berlin", "lyon"])
tea.add_outputs(prefix="Tea")
InventoryOrders(stack, "Seats", name="seats", monitoring="basic", api=False).add_outputs("Seats")
runtime, code = lambda_.Runtime.PYTHON_3_14, lambda_.Code.from_asset("checkout")
checkout = lambda_.Function(stack, "Checkout", runtime=runtime, handler="index.handler", code=code)
checkout.add_environment("ORDER_QUEUE_URL", tea.queues["OrderQueue"].queue_url)
tea.queues["OrderQueue"].grant_send_messages(checkout)
placed = events.Rule(stack, "OnPlaced", event_bus=tea.bus)
placed.add_event_pattern(source=["inventory-orders"], detail_type=["OrderPlaced"])
placed.add_target(targets.SqsQueue(sqs.Queue(stack, "Placed", enforce_ssl=True)))
app.synth()
