"""What a policy takes: of the machine's time, and of the processor's on a machine that is busy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pipelines.clock import Clock, ProcessorClock, SystemClock


class Reading(NamedTuple):
    """Of two clocks at once."""

    wall_s: float
    cpu_s: float

    def since(self, earlier: Reading) -> Reading:
        """Give what passed since another reading."""
        return Reading(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """What measures the time that policies take.

    Attributes:
        wall: The machine's time.
        cpu: The processor's.
    """

    wall: Clock = field(default_factory=SystemClock)
    cpu: Clock = field(default_factory=ProcessorClock)

    def read(self) -> Reading:
        """Give both clocks as they stand."""
        return Reading(self.wall.now(), self.cpu.now())
