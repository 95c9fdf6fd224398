"""The desk: a web application for staff, with its pages and the server that shows them on an operator's machine.

`page/` has the sources for the browser, which use the HTTP API alone. `site` answers HTTP requests and checks who sends
them. `api` forwards requests to the HTTP API, and `letters` reads dead letters, which needs AWS permissions. `server` runs the
desk: in the background for the embedded AWS; for an account, only as long as the command runs.
"""
