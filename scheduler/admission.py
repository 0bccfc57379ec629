"""Placing plans in a given order: what runs first where it is, then whoever comes next."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.compiled import Compiled
from scheduler.placement import Placement


def keep_running(compiled: Compiled, placement: Placement, ranked: Sequence[int]) -> None:
    """Place what runs, in rank order: on its machines, else its plan on others, else not."""
    running = compiled.running()
    owner = compiled.arrays.owner
    homeless = []
    for plan in ranked:
        query = int(owner[plan])
        if query in running and running[query].plan == plan:
            if not placement.occupy(query, running[query]):
                homeless.append(plan)
        elif compiled.runs_with(query, plan):
            homeless.append(plan)
    admit(compiled, placement, homeless)


def admit(compiled: Compiled, placement: Placement, ranked: Sequence[int]) -> bool:
    """Place what fits, plan after plan; give whether anything did."""
    before = len(placement.at)
    owner = compiled.arrays.owner.tolist()
    for plan in ranked:
        if owner[plan] not in placement.at:
            placement.place(owner[plan], plan, compiled.arrays.items(plan))
    return len(placement.at) > before
