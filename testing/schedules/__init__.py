"""Who moves next: the ways to run a world."""
