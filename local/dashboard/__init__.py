"""The deployed CloudWatch dashboard, on this machine: its own body, drawn from the stack's logs and queues.

`metrics`, `expressions`, `body` and `alarms` are pure; `collector` reads from AWS; `server` serves the page in `page/`;
`background` starts and stops it; `browser` takes its picture.
"""
