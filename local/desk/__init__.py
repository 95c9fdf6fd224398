"""The desk: one local web application for operators, with the dashboard, a page to try the service, and the API's contract.

`work` reads and changes a stack. `site` answers HTTP requests and checks who sends them. `server` runs the desk: in the
background for the embedded AWS, and as long as the command runs for an account. `page/` has the files for the browser.
"""
