"""The deployed CloudWatch dashboard on this machine: drawn from its own definition and the stack's logs and queues.

`metrics`, `expressions`, `body` and `alarms` are pure; `collector` reads from AWS; `service` joins them for the page;
`browser` takes its picture.
"""
