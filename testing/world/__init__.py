"""The shop that tests run in: tables, queues, settings, clocks, faults, and what must hold."""
