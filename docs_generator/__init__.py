"""Generates documents from the code: the pages in docs/generated, tables of other pages, and the AsyncAPI document."""
