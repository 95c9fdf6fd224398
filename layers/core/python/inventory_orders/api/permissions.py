"""The permission that each route of the HTTP API requires, and the routes that customers need none for."""

EVERY_PERMISSION = "*"

ANY_PERMISSION = "any"
"""Stands for a route that is open to operators and to all staff, whatever their permissions."""

PERMISSIONS = {
    "GET /about": ANY_PERMISSION,
    "GET /today": "orders.read",
    "GET /changes": ANY_PERMISSION,
    "POST /orders": "orders.place",
    "GET /orders": "orders.read",
    "GET /orders/{orderId}": "orders.read",
    "PATCH /orders/{orderId}": "orders.amend",
    "POST /orders/{orderId}/confirm": "orders.confirm",
    "POST /orders/{orderId}/extend": "orders.amend",
    "POST /orders/{orderId}/fulfil": "orders.fulfil",
    "POST /orders/{orderId}/unfulfil": "orders.fulfil",
    "POST /orders/{orderId}/cancel": "orders.cancel",
    "POST /orders/{orderId}/returns": "orders.return",
    "GET /barcodes": "products.read",
    "GET /products": "products.read",
    "GET /products/{productId}": "products.read",
    "POST /products": "products.write",
    "PATCH /products/{productId}": "products.write",
    "DELETE /products/{productId}": "products.write",
    "POST /products/{productId}/discontinue": "products.write",
    "POST /products/{productId}/list-again": "products.write",
    "GET /products/{productId}/adjustments": "stock.read",
    "GET /products/{productId}/history": "stock.read",
    "GET /transfers": "stock.read",
    "GET /stock": "stock.read",
    "GET /stock/{productId}": "stock.read",
    "POST /products/{productId}/adjustments": "stock.adjust",
    "POST /products/{productId}/transfers": "stock.adjust",
    "GET /counts": "stock.count",
    "POST /counts": "stock.count",
}
"""The permissions by route. The setting `roles.grants` lists those of each role."""

FOR_CUSTOMERS = frozenset(
    {
        *("POST /orders", "GET /orders", "GET /orders/{orderId}"),
        *("GET /products", "GET /products/{productId}"),
    }
)
"""The routes that customers may call without a permission, for products and their own orders."""

AMEND = "PATCH /orders/{orderId}"
"""The route that customers may call, too, with the setting `customersMayAmend`."""
