"""All schedules of two processes, with a fault: the exploration."""
