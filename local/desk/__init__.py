"""The desk: a local web application for operators, with the dashboard, a page for trying the service, and the API's contract.

`work` reads and changes a stack. `site` answers HTTP requests and checks who sends them. `server` runs the desk: in the
background for the embedded AWS; for an account, only as long as the command runs. `page/` has the files for the
browser.
"""
