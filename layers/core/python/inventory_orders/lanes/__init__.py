"""Stock set aside in lanes: supply, recall, and the return of idle units."""
