"""Where everything is kept: the requests to DynamoDB, and how its rows are laid out."""
