"""Storage: the requests to DynamoDB, and the layout of its rows."""
