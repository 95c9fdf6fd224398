"""Explains the stock of one product from the books."""

from __future__ import annotations

from operations.audit import read_books
from operations.aws import Aws
from operations.books import Account, Entry, history


def explained(aws: Aws, product_id: str) -> tuple[Account, list[Entry]]:
    """Return the account of a product's latest generation, and every change to its stock."""
    books = read_books(aws)
    account = max(
        (a for a in books.accounts if a.product_id == product_id), key=lambda a: a.created_at
    )
    return account, history(books, account)
