"""Shared code of the handlers: settings, a batch of SQS messages, direct commands, logs and metrics."""
