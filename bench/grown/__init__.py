"""Shops that have had many orders, in tables that can hold a million of them."""
