"""The sweep during other traffic: its calls, and the queue of expiries that it fills."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from bench.contenders import OURS
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import Workload
from local.stack import SETTINGS
from testing.schedules.by_time.queues import Queue
from testing.schedules.by_time.world import InvocationTimeout, Worker

SWEEP_EACH_SECONDS = 60.0
SWEEP_SECONDS = 50.0
"""Timeout of the sweep, as in the stack."""


class Swept(Simulation):
    """A simulation in which the sweep can run.

    Args:
        workload: The orders.
        workers: Number of order workers.
        seed: Seed of all randomness.
        conditions: The conditions of the run.
    """

    def __init__(self, workload: Workload, workers: int, seed: int, conditions: Conditions) -> None:
        super().__init__(OURS, workload, workers, seed, conditions)
        self.polled["Expiry"] = Queue(self.scheduler, (), stays=True)
        self.variables["HOLD_GRACE_SECONDS"] = str(SETTINGS["holdGraceSeconds"])

    def _start_sweep(self, seconds: float = SWEEP_EACH_SECONDS) -> None:
        """Sweep at a fixed interval, until the window ends."""
        self.scheduler.start(partial(self._sweep, seconds), Worker())

    def _sweep(self, seconds: float) -> None:
        while not self.is_closed:
            began = self.scheduler.now
            with suppress(InvocationTimeout):
                self.invoke("sweep", {"action": "sweep"}, SWEEP_SECONDS)
            self.scheduler.sleep(began + seconds - self.scheduler.now)
