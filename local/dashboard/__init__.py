"""The deployed CloudWatch dashboard on this machine: drawn from its own definition and the stack's logs and queues.

`metrics`, `expressions`, `body` and `alarms` are pure; `collector` reads from AWS; `server` serves the page in `page/`;
`background` starts and stops it; `browser` takes its picture. `trial` is behind the page to try the service.
"""
