"""The generated documents: pages, tables and the AsyncAPI document, all made from the code."""
