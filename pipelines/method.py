"""How a query is planned: which strategy proposes, what ends a measurement, how inputs are drawn.

The names are what query files, settings, studies and pages call the parts. What they stand for
is made in `deploy.planning`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines import checks

STRATEGIES = ("multi_fidelity", "cmbo", "random", "exhaustive")
STOPPING = ("betting", "t_test")
SAMPLING = ("random", "stratified")

DECIDES_ITSELF = "multi_fidelity"
"""The strategy that knows by itself what is accurate enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningMethod:
    """The parts that plan a query.

    Attributes:
        strategy: Proposes what to measure, of `STRATEGIES`.
        stopping: Says when a configuration has met enough inputs, and so whether it is accurate
            enough, of `STOPPING`; None: the strategy does.
        sampling: The order in which inputs are drawn, of `SAMPLING`: at random, or round robin
            over strata of alike ones.
    """

    strategy: str = DECIDES_ITSELF
    stopping: str | None = None
    sampling: str = "random"

    def __post_init__(self) -> None:
        checks.among("planning.strategy", self.strategy, STRATEGIES)
        checks.among("planning.sampling", self.sampling, SAMPLING)
        if self.strategy == DECIDES_ITSELF:
            rule = f"must be left out with the strategy {self.strategy}, which decides by itself"
            checks.require(self.stopping is None, "planning.stopping", rule, self.stopping)
            return
        checks.among("planning.stopping", self.stopping, STOPPING)
        proven = self.stopping != "betting" or self.sampling == "random"
        rule = "must be random with the stopping rule betting, which is proven for no other order"
        checks.require(proven, "planning.sampling", rule, self.sampling)

    def changed(
        self,
        *,
        strategy: str | None = None,
        stopping: str | None = None,
        sampling: str | None = None,
    ) -> PlanningMethod:
        """Give the same with other parts; None: as it is.

        Another strategy brings the stopping rule that it needs where none is named: none for the
        one that decides itself, `betting` for others, `t_test` where inputs are stratified.

        Raises:
            InvalidInput: If a name is unknown or the parts do not go together.
        """
        chosen = strategy or self.strategy
        order = sampling or self.sampling
        rule = stopping
        if stopping is None and chosen != DECIDES_ITSELF:
            rule = self.stopping or ("betting" if order == "random" else "t_test")
        return PlanningMethod(strategy=chosen, stopping=rule, sampling=order)
