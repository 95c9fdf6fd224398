"""The CDK stack: one module for each part of it."""
