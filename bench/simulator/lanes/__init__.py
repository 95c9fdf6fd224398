"""A model of stock in lanes: policies that the service does not have yet, on simulated tables, in virtual time.

`python -m bench.simulator.lanes --help` runs it; docs/lanes.md tells what came of it.
"""
