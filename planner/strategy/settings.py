"""Settings of the product's own strategy, see `planner.strategy.multi_fidelity`."""

from __future__ import annotations

from dataclasses import dataclass

from circinus.pipelines import checks

_MOST_CANDIDATES = 7_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiFidelitySettings:
    """Settings of the strategy."""

    # Spaces up to this size are searched whole, of larger ones so many are drawn.
    candidates: int = _MOST_CANDIDATES
    confidence: float = 0.98  # that accuracy holds when a configuration is announced, in (0.5, 1)
    latency_confidence: float = 0.98  # that latency holds, in (0.5, 1)
    # Fewest inputs to announce on, `>= 2`. 16: a t-interval of so few is still honest, and an
    # oracle that confirms a known answer is granted 20.
    minimum: int = 16
    first: int = 1  # inputs at which a configuration is first left or kept, `>= 1`
    step: int = 4  # most inputs between two decisions, `>= 1`
    horizon_s: float = 3600.0  # how long a plan is taken to serve when the query does not say
    # Hyper-parameters are chosen anew each time there are so many times as many observations, `>
    # 1`.
    refit_growth: float = 1.5
    fidelities: bool = True  # whether the number of inputs is chosen; False: `minimum` at once
    # Whether seconds are learnt per operator; False: of whole configurations.
    structured: bool = True
    unpaid: bool = True  # whether only what the cache does not hold counts as cost
    ordered: bool = True  # whether neighbouring values of ordered knobs are alike
    paired: bool = True  # whether noise is shared between configurations that met the same inputs
    history: bool = True  # whether the models start from what earlier queries measured

    def __post_init__(self) -> None:
        for name in ("candidates", "first", "step"):
            value = getattr(self, name)
            checks.require(value >= 1, f"multi_fidelity.{name}", "must be >= 1", value)
        checks.require(self.minimum >= 2, "multi_fidelity.minimum", "must be >= 2", self.minimum)
        for name in ("confidence", "latency_confidence"):
            value = getattr(self, name)
            rule = "must be in (0.5, 1)"
            checks.require(0.5 < value < 1, f"multi_fidelity.{name}", rule, value)
        growth = self.refit_growth
        checks.require(growth > 1, "multi_fidelity.refit_growth", "must be > 1", growth)
        checks.positive("multi_fidelity.horizon_s", self.horizon_s)
