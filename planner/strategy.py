"""What a search strategy is: it proposes configurations and is told what they gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines import checks
from pipelines.configuration import ConfigurationSpace
from pipelines.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What measuring a configuration gave.

    Attributes:
        accuracy: Mean score, finite.
        latency_s: Least latency that any placement gives at full shares, in the SLO's statistic,
            `>= 0`.
        reference_s: Mean operator seconds that one input takes on the reference machine, `>= 0`:
            what profiling costs.
        inputs: On how many inputs these rest, `>= 1`.
    """

    accuracy: float
    latency_s: float
    reference_s: float
    inputs: int

    def __post_init__(self) -> None:
        checks.probability("observation.accuracy", self.accuracy)
        checks.non_negative("observation.latency_s", self.latency_s)
        checks.non_negative("observation.reference_s", self.reference_s)
        checks.require(self.inputs >= 1, "observation.inputs", "must be >= 1", self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The configuration to measure next.

    Attributes:
        number: Of the configuration.
        chance: What the strategy takes the probability to be that any configuration not measured
            yet meets the SLOs, at most; None when it cannot say.
    """

    number: int
    chance: float | None = None


class Strategy(Protocol):
    """Decides which configuration is measured next. Keeps the state of one search.

    Calls alternate: every proposal is observed before the next is asked for. No number is
    proposed twice. Equal spaces, SLOs, generators and observations give equal proposals.
    """

    def propose(self) -> Proposal | None:
        """Give the next configuration; None when there is nothing left to propose."""

    def observe(self, number: int, seen: Observation | None) -> None:
        """Take in what a configuration gave; None: measuring failed, it gave nothing."""


class StrategyFactory(Protocol):
    """Makes the strategy of one search."""

    def __call__(self, space: ConfigurationSpace, slo: Slo, rng: np.random.Generator) -> Strategy:
        """Give a strategy that has seen nothing."""
