"""The desk: one local web application for operators, with the dashboard, a page to try the service, and the API's contract.

`work` reads and changes a stack, `site` is HTTP and who may use it, `server` runs it: in the background for the embedded
AWS (`background` starts and stops it), else for as long as the command runs. `trial` is behind the page to try the
service, and `page/` is what the browser gets.
"""
