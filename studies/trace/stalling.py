"""A trace as a machine would have measured it that stands still now and then.

Whoever plans from few inputs meets such a machine sooner or later (another tenant, a collector of
garbage, a full disk), and single runs then take a hundred times as long as the others. The trace
is changed by rule, so that anybody can have the same one:

| symbol | meaning |
| --- | --- |
| t | seconds of a run: an operator on an input, at one setting of its knobs and its ancestors' |
| k | stalls that it meets: Poisson with mean t / `every_s`, as they come while it runs |
| s | seconds of each: exponential with mean `stall_s` |

A run then takes t and the sum of its k stalls; its mean grows by the factor
1 + `stall_s` / `every_s`. A run that configurations share is changed once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.io.trace import Trace, runs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """How a machine stalls."""

    every_s: float = 0.25  # mean seconds of running between two stalls, `> 0`
    stall_s: float = 0.1  # mean seconds of a stall, `> 0`
    seed: int = 0  # of where they fall

    def __post_init__(self) -> None:
        checks.positive("every_s", self.every_s)
        checks.positive("stall_s", self.stall_s)


def stalled(trace: Trace, stalls: Stalls) -> Trace:
    """Return the trace with stalls; its pipeline is called `NAME_stalled`, scores stay."""
    rng = np.random.default_rng(stalls.seed)
    latency_s = trace.latency_s.astype(np.float64)
    for o in range(len(trace.graph.operators)):
        first, group = runs_of(trace, o)
        runs_s = np.zeros((len(first), latency_s.shape[2]))  # (runs, N)
        np.fmax.at(runs_s, group, latency_s[:, o])  # equal, or NaN where a configuration failed
        met = rng.poisson(runs_s / stalls.every_s)
        added = np.where(met > 0, rng.gamma(np.maximum(met, 1), stalls.stall_s), 0.0)
        latency_s[:, o] += added[group]
    graph = replace(trace.graph, name=f"{trace.graph.name}_stalled")
    return replace(trace, graph=graph, latency_s=latency_s.astype(np.float32))
