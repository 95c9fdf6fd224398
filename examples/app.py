"""An app of your own with two services in one stack: tea with holds and two warehouses, and tickets for little money."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from inventory_orders_cdk import InventoryOrders

app = cdk.App()
stack = cdk.Stack(app, "Shop")
tea = InventoryOrders(stack, "Tea", name="tea", hold_seconds=900, locations=["berlin", "lyon"])
tickets = InventoryOrders(stack, "Tickets", name="tickets", monitoring="basic", api=False)
queue, code = tea.queues["OrderQueue"], lambda_.Code.from_asset("checkout")
checkout = lambda_.Function(stack, "Checkout", runtime=lambda_.Runtime.PYTHON_3_14, handler="index.handler", code=code)  # fmt: skip
checkout.add_environment("ORDER_QUEUE_URL", queue.queue_url)
queue.grant_send_messages(checkout)
placed = events.EventPattern(source=["inventory-orders"], detail_type=["OrderPlaced"])
targets = [targets.SqsQueue(sqs.Queue(stack, "Placed", enforce_ssl=True))]
events.Rule(stack, "OnPlaced", event_bus=tea.bus, event_pattern=placed, targets=targets)
app.synth()
