"""Code shared by the handlers: settings, batches of SQS messages, direct commands, logs and metrics."""
