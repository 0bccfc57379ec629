"""Whether an operator answers equal inputs differently, though nobody declared that it draws.

Two runs on one input tell. Where its first run with new settings is made twice to be warm, that
costs nothing. Besides, the operators that run for one measurement in `_EVERY` run once more, until
`MOST_COMPARED` such measurements were made: one that differs once in twenty runs is seldom noticed
by a single pair. The one rule: an operator that is paid by the call runs once more at most once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from circinus.pipelines.model.operators import Operator
from circinus.profiler.execution import Completed

_EVERY = 5
MOST_COMPARED = 30
"""With 30, an operator whose runs differ from the usual one in twenty is noticed with 95 %: a pair
differs in 9.75 %, and 0.9025 ** 30 is 4.6 %. They cost a fifth of the first 150 measurements."""


@dataclass(slots=True)
class Comparisons:
    """What is known of the operators of one version of a pipeline. Threads may share it."""

    most: int = MOST_COMPARED  # measurements whose operators run once more
    alike: set[str] = field(default_factory=set)  # operators that answered alike
    unlike: set[str] = field(default_factory=set)  # those that were seen to draw

    def needs_another(self, operator: Operator, done: Completed) -> bool:
        """Say whether it has to run once more, after a run of a measurement that is compared."""
        name = operator.name
        if operator.spec.draws or done.varies is not None or name in self.unlike:
            return False
        known = name in self.alike
        self.alike.add(name)
        return not (known and operator.spec.calls)

    def learn(self, operator: Operator, done: Completed) -> bool:
        """Take in a run; return whether a second one differed, of an operator not declared to."""
        if done.varies is None or operator.spec.draws:
            return False
        (self.unlike if done.varies else self.alike).add(operator.name)
        return done.varies

    def is_compared(self, number: int) -> bool:
        """Say whether the operators that run for the measurement of that number are compared."""
        return number % _EVERY == 0 and number < _EVERY * self.most
