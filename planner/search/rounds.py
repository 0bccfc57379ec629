"""Which measurements are made at once: proposals, each knowing of those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from circinus.planner.strategy.protocol import Proposal


def proposed(
    propose: Callable[[Sequence[Proposal]], Proposal | None],  # given those under way
    met: Callable[[int], int],  # how many inputs a configuration has met, by number
    *,
    width: int,  # how many measurements are made at once, `>= 1`
    new: float,  # configurations that have met none that limits allow; the first may be one anyway
) -> list[Proposal]:
    """Return proposals to measure at once, together enough to keep all busy; none: none are left.

    What only a rule ends is measured alone: nobody knows how long it will take.
    """
    chosen: list[Proposal] = []
    while width > 0 and (proposal := propose(tuple(chosen))) is not None:
        before = met(proposal.number)
        alone = proposal.inputs is None
        if chosen and (alone or (before == 0 and new < 1)):
            break
        chosen.append(proposal)
        new -= before == 0
        width = 0 if proposal.inputs is None else width - (proposal.inputs - before)
    return chosen
