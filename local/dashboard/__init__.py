"""The deployed CloudWatch dashboard on this machine, drawn from its definition and the stack's logs and queues.

`metrics`, `expressions`, `body` and `alarms` are pure; `collector` reads from AWS; `service` combines them for the page;
`browser` takes pictures of it.
"""
