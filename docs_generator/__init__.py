"""The generated documents: pages, tables and the AsyncAPI document, all derived from the code."""
