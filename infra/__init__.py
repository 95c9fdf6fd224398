"""The CDK stack, one module for each concern."""
