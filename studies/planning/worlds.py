"""The world of a query before and after a drift, both known completely.

Two drifts of Circinus 4.3:

- latency: a link keeps a part of its bandwidth. Profiles are of the reference machine, so what was
  measured still holds.
- accuracy: inputs are others than before: in less light, with more noise. What was measured is
  history, that is a hint. They are those of a second trace, of the same pipeline, or another half
  of the one trace.

Deviations from section 6.4, where the link between edge and cloud drops from 0.4 to 0.2 Gbps under
a video chat: the link here is the first, from the device to the edge, and it drops by the same
factor. Traces measured so far hand on at most 86 kB: on the paper's tiers the device alone does
for every SLO, and 0.2 Gbps to the cloud adds 2 ms. So the device is slower here (`WEAK_DEVICE`).
Where there is no second trace a feature of the inputs tells harder from easier ones: no lighting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.studies.planning.study import ONE_TIER, of_inputs
from circinus.studies.planning.truth import Truth

_THREE = PRESETS["three-tier"]
WEAK_DEVICE = replace(
    _THREE,
    name="weak-device",
    tiers=(replace(_THREE.tiers[0], speed_factor=0.03), *_THREE.tiers[1:]),
)
"""The paper's three tiers, the device at 0.03 of the reference instead of 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worlds:
    """The world before and after a drift, known completely, and the change in words."""

    before: Truth
    after: Truth
    change: str


def with_thinner_link(
    trace: Trace,
    infrastructure: Infrastructure | None,  # before; None: `WEAK_DEVICE`
    link: tuple[str, str] | None,  # its tiers; None: the infrastructure's first
    left: float,  # part of its bandwidth that is left, in (0, 1)
) -> Worlds:
    """Return worlds that differ in the bandwidth of a link; InvalidInput if it is not there."""
    where = infrastructure or WEAK_DEVICE
    names = [" - ".join(link.between) for link in where.links]
    checks.require(len(names) > 0, "infrastructure.links", "must hold one to drift", names)
    wanted = link or where.links[0].between
    found = next((each for each in where.links if set(each.between) == set(wanted)), None)
    if found is None:
        raise InvalidInput.of("link", f"must be among {', '.join(names)}", " - ".join(wanted))
    thin = replace(found, bandwidth_bytes_per_s=left * found.bandwidth_bytes_per_s)
    links = tuple(thin if each is found else each for each in where.links)
    change = f"{' - '.join(found.between)} at {left:g} of its bandwidth"
    after = Truth(trace, replace(where, links=links))
    return Worlds(before=Truth(trace, where), after=after, change=change)


def with_harder_inputs(trace: Trace, infrastructure: Infrastructure | None) -> Worlds:
    """Return scenarios of the easier and harder half of a trace; InvalidInput without features."""
    where = infrastructure or ONE_TIER
    easier, harder, change = halves_by_feature(trace)
    before, after = (Truth(of_inputs(trace, half), where) for half in (easier, harder))
    return Worlds(before=before, after=after, change=change)


def with_other_inputs(
    before: Trace, after: Trace, infrastructure: Infrastructure | None
) -> Worlds:
    """Return worlds of one trace's inputs, then another's; InvalidInput if pipelines differ."""
    where = infrastructure or ONE_TIER
    alike = before.graph == after.graph
    checks.require(alike, "after", "must be of the same pipeline", after.graph.name)
    same = np.array_equal(before.configurations, after.configurations)
    rule = "must hold the configurations of the other trace"
    checks.require(same, "after", rule, f"{len(after.configurations)} configurations")
    change = f"{len(after.input_bytes)} inputs of another trace"
    return Worlds(before=Truth(before, where), after=Truth(after, where), change=change)


def halves_by_feature(trace: Trace) -> tuple[IndexArray, IndexArray, str]:
    """Return the inputs of the easier half and of the harder one, and which feature splits them.

    Halves are below and above the median; the feature is the one whose halves differ most in mean
    score over all configurations. InvalidInput if inputs have none.
    """
    count = trace.features.shape[1]
    checks.require(count > 0, "trace.features", "must hold one to split inputs by", count)
    draws = trace.score.astype(float).reshape(-1, len(trace.input_bytes))  # (C D, N)
    ease = np.nanmean(draws, axis=0)  # (N,)
    orders = np.argsort(trace.features, axis=0, kind="stable")  # (N, F)
    middle = len(orders) // 2
    below, above = ease[orders[:middle]].mean(axis=0), ease[orders[middle:]].mean(axis=0)  # (F,)
    feature = int(np.argmax(np.abs(below - above)))
    halves = [orders[:middle, feature], orders[middle:, feature]]
    names = ["below", "above"]
    if below[feature] < above[feature]:
        halves, names = halves[::-1], names[::-1]
    change = f"feature {feature} from {names[0]} to {names[1]} its median"
    return halves[0], halves[1], change
