"""Imports the exports of other shop systems: their products, stock and open orders, with a proof at the end."""
