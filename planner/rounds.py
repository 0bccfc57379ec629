"""What is measured at once: a few proposals, together enough to keep all busy who measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.configuration import ConfigurationSpace
from planner.measuring import Bench, Failed, Measured, Wanted, measure, measure_each
from planner.strategy import Proposal, Strategy


def proposed(
    strategy: Strategy, met: Callable[[int], int], *, width: int, new: float
) -> list[Proposal]:
    """Give the strategy's next proposals; none: it has none left.

    What only a rule ends is measured alone: nobody knows how long it will take.

    Args:
        strategy: Proposes.
        met: How many inputs a configuration has met, by number.
        width: How many measurements are made at once, `>= 1`.
        new: How many configurations that have met none limits allow; the first proposal may be
            one in any case.
    """
    found: list[Proposal] = []
    while width > 0 and (proposal := strategy.propose(tuple(found))) is not None:
        before = met(proposal.number)
        alone = proposal.inputs is None
        if found and (alone or (before == 0 and new < 1)):
            break
        found.append(proposal)
        new -= before == 0
        width = 0 if proposal.inputs is None else width - (proposal.inputs - before)
    return found


def measured(
    bench: Bench,
    space: ConfigurationSpace,
    proposals: Sequence[Proposal],
    met: Callable[[int], int],
) -> tuple[Measured | Failed, ...]:
    """Give what proposals that are made together give, in their order.

    Args:
        bench: With what to measure.
        space: Of their configurations.
        proposals: See `proposed`.
        met: How many inputs a configuration has met, by number.
    """
    wanted = []
    for proposal in proposals:
        number, configuration = proposal.number, space.configuration(proposal.number)
        if proposal.inputs is None:
            return (measure(bench, number, configuration),)
        inputs = min(max(proposal.inputs, 1), bench.population)
        one = Wanted(number=number, configuration=configuration, inputs=inputs, met=met(number))
        wanted.append(one)
    return measure_each(bench, wanted)
