"""What the handlers share: settings, a batch of SQS messages, direct commands, logs and metrics."""
