"""Other ways to change one product: catalogue changes, atomic decrements, and counts under a lease."""
