"""Problems to try policies on, and the exact answer for tiny ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from hypothesis import strategies as st

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import Room, empty
from circinus.scheduler.problem import PARTS, Candidate, PlanOption, Problem, Slice, parts_of

TWENTIETHS = st.integers(1, 20).map(lambda n: n / 20)
ANY_SHARE = st.one_of(TWENTIETHS, st.floats(1e-9, 1.0), st.sampled_from([1e-12, 1 / 3, 1.0, 7.5]))


def plan(name: str, *items: tuple[str, float], cost: float = 0.0) -> PlanOption:
    demand = tuple(DemandItem(tier, share) for tier, share in items)
    return PlanOption(plan_id=name, demand=demand, cost_usd_per_hour=cost)


def candidate(name: str, *plans: PlanOption, weight: float = 1.0) -> Candidate:
    return Candidate(query_id=name, plans=plans, weight=weight)


def cloud(machines: int = 1) -> Tier:
    return Tier(name="cloud", machines=machines)


def occupied(tiers: Iterable[Tier], *slices: Slice) -> Room:
    """What is left of tiers when some slices of them are taken, dedicated ones left out."""
    tiers = tuple(tiers)
    room, own = empty(tiers), {tier.name for tier in tiers if tier.dedicated}
    for tier, machine, share in slices:
        if tier not in own:
            room[tier].take(machine, parts_of(share))
            assert 0 <= room[tier].on(machine) < PARTS
    return room


@st.composite
def problems(
    draw: st.DrawFn, *, shares: st.SearchStrategy[float] = ANY_SHARE, queries: int = 8
) -> Problem:
    """Unlike tiers with 0 to 3 machines, ties in weights and costs, huge and tiny demands."""
    names = ["device", "edge", "cloud"][: draw(st.integers(1, 3))]
    tiers = tuple(
        Tier(name=name, machines=draw(st.integers(0, 3)), dedicated=draw(st.booleans()))
        for name in names
    )
    items = st.lists(st.tuples(st.sampled_from(names), shares), min_size=0, max_size=4)
    weights = st.one_of(st.sampled_from([1.0, 2.0]), st.floats(1e-6, 1e6))
    candidates = []
    for q in range(draw(st.integers(0, queries))):
        plans = [
            plan(f"p{i}", *draw(items), cost=draw(st.sampled_from([0.0, 1.0, 2.5])))
            for i in range(draw(st.integers(1, 3)))
        ]
        candidates.append(candidate(f"q{q}", *plans, weight=draw(weights)))
    return Problem(tiers=tiers, candidates=tuple(candidates))


def best_goodput(problem: Problem, *, stays: bool = False) -> float:
    """The largest weight that fits, by trying every choice of plans and every packing.

    With `stays`, beside what runs, which is where it is.
    """
    running = problem.running if stays else {}
    choosing = [c for c in problem.candidates if c.query_id not in running]
    slices = [s for at in running.values() for s in at.machines]
    best = fixed = sum(c.weight for c in problem.candidates if c.query_id in running)
    for chosen in itertools.product(*([None, *c.plans] for c in choosing)):
        weight = fixed + sum(
            c.weight for c, p in zip(choosing, chosen, strict=True) if p is not None
        )
        if weight > best and _fits(problem, [p for p in chosen if p is not None], slices):
            best = weight
    return best


def _fits(problem: Problem, plans: Sequence[PlanOption], slices: Sequence[Slice]) -> bool:
    for tier in problem.tiers:
        free = [1_000_000] * tier.machines
        for slice_ in slices:
            if slice_.tier == tier.name and not tier.dedicated:
                free[slice_.machine] -= parts_of(slice_.share)
        groups = [
            [parts_of(share) for name, share in p.demand if name == tier.name] for p in plans
        ]
        together = groups if tier.dedicated else [list(itertools.chain.from_iterable(groups))]
        packed = (next(_packings(sorted(s, reverse=True), free), False) for s in together)
        if not all(packed):
            return False
    return True


def _packs(sizes: list[int], machines: int) -> bool:
    return next(_packings(sizes, [1_000_000] * machines), None) is not None


def _packings(sizes: list[int], free: list[int]) -> Iterator[bool]:
    if not sizes:
        yield True
        return
    for room in set(free):
        if room >= sizes[0]:
            rest = free.copy()
            rest[rest.index(room)] -= sizes[0]
            yield from _packings(sizes[1:], rest)


@st.composite
def quarters(draw: st.DrawFn, tiers: int) -> Problem:
    """Up to 5 queries x 3 plans on shared tiers of up to 2 machines, shares in quarters."""
    names = ["edge", "cloud"][:tiers]
    there = tuple(
        Tier(
            name=name,
            machines=draw(st.integers(1, 2)),
            price_usd_per_hour=draw(st.sampled_from([1.0, 2.5, 3.0])),
        )
        for name in names
    )
    share = st.integers(1, 4).map(lambda n: n / 4)
    items = st.lists(st.tuples(st.sampled_from(names), share), min_size=0, max_size=3)
    candidates = [
        candidate(
            f"q{q}",
            *(plan(f"p{i}", *draw(items)) for i in range(draw(st.integers(1, 3)))),
            weight=draw(st.integers(1, 5)),
        )
        for q in range(draw(st.integers(0, 5)))
    ]
    return Problem(tiers=there, candidates=tuple(candidates))


def least_rent(problem: Problem) -> float:
    """The least money of whole machines that hold all queries, by trying every choice."""
    least = inf
    for chosen in itertools.product(*(c.plans for c in problem.candidates)):
        rent = 0.0
        for tier in problem.tiers:
            sizes = [parts_of(s) for p in chosen for name, s in p.demand if name == tier.name]
            fits = (n for n in range(tier.machines + 1) if _packs(sorted(sizes)[::-1], n))
            rent += tier.price_usd_per_hour * next(fits, inf)
        least = min(least, rent)
    return least
