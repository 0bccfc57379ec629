"""Changes under served queries: a link thins, machines go and return.

Both steps change the infrastructure of the service, wait until it has noticed by itself, and
report its reaction in its own words. Afterwards they restore the infrastructure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from circinus.api.client import Client
from circinus.api.demo.cases import (
    CONTESTED,
    EXAMPLES,
    HELD_OUT_SEED,
    THIN_MBIT_PER_S,
    THINNED,
)
from circinus.api.demo.sending import example_body
from circinus.api.phases import QueryPhase
from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.schedule import ScheduleView
from circinus.api.schemas.service import EmulationBody, LinkBody, LinkView
from circinus.pipelines.clock import Clock

_AT_ONCE = 80  # requests without a pause: the service judges by 20 and more
_PAUSE_S = 0.5  # after these, while it plans
_SIDE_BY_SIDE = 6  # they wait for the link, not for this computer
_WITHIN_S = 240.0  # on a busy computer planning again takes most of it
_POLL_S = 0.1
_ROUNDING = 1e-9  # of sums of shares

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedLink:
    """What the service made of a thinner link."""

    requests: int  # until another plan answered
    why: str | None  # in the service's words; None: it noticed nothing
    before: PlanView  # the plan that answered first
    after: PlanView | None  # that answered then; None: no other did


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingMachines:
    """The service's reaction to removed machines."""

    machines: tuple[int, int]  # of the contested tier, before and while they were away
    made_way: Sequence[str]  # in the service's words
    waiting: Sequence[tuple[str, str]]  # ids of queries, and why they waited
    all_back: bool  # whether all served again when the machines were back


def thin_link(client: Client, query_id: str, clock: Clock) -> ThinnedLink:
    """Thin a link that the requests to a query cross, until another plan answers them."""
    answered = client.request(query_id, example_body(0, EXAMPLES, seed=HELD_OUT_SEED))
    first, before = client.plan(answered.plan_id or ""), len(client.query(query_id).replanned)
    with thin(client):
        requests, after = _until_another_answers(client, query_id, first.id, clock)
    replanned = client.query(query_id).replanned  # the newest first: the link's is the first anew
    since = replanned[: len(replanned) - before]
    return ThinnedLink(
        requests=requests,
        why=since[-1].why if since else None,
        before=first,
        after=None if after is None else client.plan(after),
    )


@contextmanager
def thin(client: Client) -> Iterator[None]:
    """Let the link `THINNED` have `THIN_MBIT_PER_S` within the block."""
    (link,) = (e for e in client.emulation().links if set(e.between) == set(THINNED))
    _imitate(client, link, THIN_MBIT_PER_S)
    try:
        yield
    finally:
        _imitate(client, link, link.bandwidth_bytes_per_s / BYTES_PER_MBIT)


def _imitate(client: Client, link: LinkView, mbit_per_s: float) -> None:
    thin = LinkBody(
        between=list(link.between), bandwidth_mbit_per_s=mbit_per_s, delay_s=link.delay_s
    )
    client.set_emulation(EmulationBody(links=[thin]))


def _until_another_answers(
    client: Client, query_id: str, first: str, clock: Clock
) -> tuple[int, str | None]:
    """Return how many requests were answered until another plan than the first did, and which."""
    numbers, deadline = count(), clock.now() + _WITHIN_S

    def ask() -> str | None:
        while clock.now() < deadline:
            if (index := next(numbers)) >= _AT_ONCE:
                clock.sleep(_PAUSE_S)
            body = example_body(index % EXAMPLES, EXAMPLES, seed=HELD_OUT_SEED)
            reply = client.request(query_id, body)
            if reply.plan_id != first:
                return reply.plan_id
        return None

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        answered = [pool.submit(ask) for _ in range(_SIDE_BY_SIDE)]
        others = [plan for each in answered if (plan := each.result()) is not None]
    return next(numbers), others[0] if others else None


def take_machines(client: Client, ids: Sequence[str], clock: Clock) -> MissingMachines:
    """Remove machines of the contested tier until a query is displaced; restore them."""
    before = client.schedule()
    (tier,) = (each for each in before.tiers if each.tier == CONTESTED)
    left = max(n for n in range(tier.machines) if n < tier.used - _ROUNDING or n == 0)
    known = {each.at for each in before.displaced}

    def displaced() -> ScheduleView | None:
        now = client.schedule()
        moved = any(each.at not in known for each in now.displaced)
        still = {QueryPhase.SERVING, QueryPhase.WAITING}  # none is being moved
        return now if moved and all(client.query(i).phase in still for i in ids) else None

    client.set_machines({CONTESTED: left})
    try:
        now = _awaited(displaced, clock) or client.schedule()
    finally:
        client.set_machines({CONTESTED: None})

    def served() -> bool:
        return all(client.query(each).phase is QueryPhase.SERVING for each in ids)

    return MissingMachines(
        machines=(tier.machines, left),
        made_way=[each.sentence for each in now.displaced if each.at not in known],
        waiting=[(each.query_id, each.reason) for each in now.waiting],
        all_back=bool(_awaited(lambda: served() or None, clock)),
    )


def _awaited(look: Callable[[], Value | None], clock: Clock) -> Value | None:
    """Return the value of a look once there is one; None: there is none in time."""
    deadline = clock.now() + _WITHIN_S
    while clock.now() < deadline:
        if (value := look()) is not None:
            return value
        clock.sleep(_POLL_S)
    return None
