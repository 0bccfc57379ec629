"""How far the measurement of a trace is, and what it met on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.clock import Clock
from pipelines.profile import Failure

_REPORT_EVERY_S = 0.2
_CAUSES_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProgress:
    """How far a measurement is. A pair is a configuration on an input.

    Attributes:
        inputs_done: Inputs on which every configuration has been measured.
        inputs: Inputs in all.
        measured: Pairs measured, those of a run that was cut off included.
        pairs: Pairs in all.
        failures: Pairs of this run that gave no score.
        elapsed_s: Seconds since this run began to measure.
        left_s: Seconds that the rest takes at the pace so far; None before the first pair.
    """

    inputs_done: int
    inputs: int
    measured: int
    pairs: int
    failures: int
    elapsed_s: float
    left_s: float | None


Observer = Callable[[TraceProgress], None]


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts pairs and tells an observer, a few times a second and after every input.

    Attributes:
        clock: Gives the pace.
        observer: Who is told; None: nobody.
        configurations: C.
        inputs: N.
        resumed: Inputs measured by an earlier run.
        done: Inputs measured by this one.
        pairs_done: Pairs measured by this run.
        failures: Pairs of this run without a score.
        causes: Why, the first few unlike ones.
        spent_s: Operator seconds run so far.
        saved_s: Operator seconds that shared prefixes saved so far.
    """

    clock: Clock
    observer: Observer | None
    configurations: int
    inputs: int
    resumed: int = 0
    done: int = 0
    pairs_done: int = 0
    failures: int = 0
    causes: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    saved_s: float = 0.0
    _start_s: float = field(init=False)
    _told_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._start_s = self._told_s = self.clock.now()

    def pair(self, failure: Failure | None) -> None:
        """Count a pair."""
        self.pairs_done += 1
        if failure is not None:
            self.failures += 1
            cause = f"{failure.operator}: {failure.cause}"
            if cause not in self.causes and len(self.causes) < _CAUSES_KEPT:
                self.causes.append(cause)
        if self.clock.now() - self._told_s >= _REPORT_EVERY_S:
            self.tell()

    def input(self) -> None:
        """Count an input as done."""
        self.done += 1
        self.tell()

    def tell(self) -> None:
        """Tell the observer how far it is."""
        self._told_s = self.clock.now()
        if self.observer is not None:
            self.observer(self.progress())

    def progress(self) -> TraceProgress:
        """Give how far it is."""
        pairs = self.inputs * self.configurations
        measured = self.resumed * self.configurations + self.pairs_done
        elapsed_s = self.clock.now() - self._start_s
        pace = elapsed_s / self.pairs_done if self.pairs_done else None
        return TraceProgress(
            inputs_done=self.resumed + self.done,
            inputs=self.inputs,
            measured=measured,
            pairs=pairs,
            failures=self.failures,
            elapsed_s=elapsed_s,
            left_s=None if pace is None else pace * (pairs - measured),
        )
