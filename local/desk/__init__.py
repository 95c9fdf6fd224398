"""The desk: one local web application for operators, with the dashboard, a page to try the service, and the API's contract.

`work` reads and changes a stack, `site` is HTTP and who may use it, `server` runs it: for the embedded AWS in the
`background`, else for as long as the command runs. `page/` is what the browser gets.
"""
