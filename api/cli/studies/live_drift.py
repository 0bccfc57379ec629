"""`circinus study live-drift`: drifts of a running deployment."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Event
from typing import Annotated

from typer import Option

from circinus.api.client import Client
from circinus.api.demo.cases import DRIFTING
from circinus.api.demo.changes import thin
from circinus.api.demo.run import calibrated
from circinus.api.demo.sending import example_body
from circinus.api.demo.service import running_service
from circinus.api.phases import SETTLED, QueryPhase
from circinus.api.schemas.query import SloRequest
from circinus.api.text.screen import Screen, on_signal
from circinus.deploy.methods import METHODS, Method
from circinus.pipelines import checks
from circinus.pipelines.catalog.digits import NAME, NIGHT_SEED, nightfall
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError
from circinus.studies.planning.live_drift import DriftAnswer, LiveDrift, picture
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import markdown, mean, written

_PIPELINE = f"{nightfall.__module__}:{nightfall.__name__}"
_QUERY = DRIFTING.request.model_copy(
    update={
        "pipeline": f"{NAME}_nightfall",
        # Which other plans reach at night, and those of the day do not.
        "slo": SloRequest(accuracy=0.5, latency_s=DRIFTING.slo.latency_s),
    }
)
_BEFORE_S = {"link": 26.0, "light": 30.0}  # the paper's times
_NAMES = {"link": "latency is", "light": "accuracy is"}  # in the service's words
_SERVES_S = 10.0  # that another plan has to answer for before a drift counts as over
_WITHIN_S = 180.0
_PLANNED_WITHIN_S = 300.0
_MOST_PER_S = 100.0
_AT_ONCE = 16  # requests under way
_LOOK_S = 0.25
_DAY_SEED, _EXAMPLES = 12, 200


def live_drift(
    screen: Screen,
    out: Annotated[
        Path, Option(help="Folder of live-drift.csv, answers.csv and a picture.", file_okay=False)
    ],
    method: Annotated[str, "Of the service."] = "default",
    rate: Annotated[float, "Requests a second."] = 4.0,
    runs: Annotated[int, Option(help="Services, one after the other.", min=1)] = 3,
) -> None:
    """Let a link and then the inputs of a query that is served drift; time what the service does.

    A service of the demo's kind on this computer, with emulated tiers: some minutes a run.
    """
    checks.require(0 < rate <= _MOST_PER_S, "rate", f"must be in (0, {_MOST_PER_S:g}]", rate)
    checks.among("method", method, METHODS)
    answers: list[DriftAnswer] = []
    with screen.follow() as lines:

        def drifts() -> Iterator[LiveDrift]:
            for number in range(runs):
                lines.update({f"run {number}": ("", "under way")})
                each, answered = _run(number, rate, METHODS[method])
                answers.extend(answered)
                yield from each
                lines.update({f"run {number}": ("done", "done")})

        rows = written(drifts(), LiveDrift, out / "live-drift.csv")
    written(iter(answers), DriftAnswer, out / "answers.csv")
    for number in range(runs):
        figure = picture(rows, answers, number)
        (out / f"live-drift-{number}.svg").write_text(svg(figure), encoding="utf-8")
    screen.show(markdown(rows, LiveDrift), document={"folder": out, "drifts": rows})


@dataclass(slots=True)
class _Traffic:
    """Requests to a query, at a rate, and their answers."""

    client: Client
    query_id: str
    run: int
    rate_per_s: float
    drift: str = "before"
    seed: int = _DAY_SEED
    answers: list[DriftAnswer] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)
    start: float = 0.0

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send requests until the block is left, and wait for their answers."""
        over, self.start = Event(), self.clock.now()

        def flow() -> None:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for number in count():
                    if over.wait(max(self.start + number / self.rate_per_s - self.clock.now(), 0)):
                        pool.shutdown(cancel_futures=True)
                        return
                    pool.submit(self._ask, number)

        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(flow)
            try:
                yield
            finally:
                over.set()
                sending.result()

    def _ask(self, number: int) -> None:
        drift, at_s = self.drift, self.now_s()
        plan: str | None = None
        latency_s = score = None
        with suppress(CircinusError):
            body = example_body(number % _EXAMPLES, _EXAMPLES, seed=self.seed)
            reply = self.client.request(self.query_id, body)
            plan, latency_s, score = reply.plan_id, reply.latency_s, reply.score
        self.answers.append(
            DriftAnswer(
                run=self.run, drift=drift, at_s=at_s, plan=plan, latency_s=latency_s, score=score
            )
        )

    def now_s(self) -> float:
        """Return seconds since the first request."""
        return self.clock.now() - self.start

    def since(self, drift: str) -> list[DriftAnswer]:
        """Return the answers since a drift, in the order of their requests."""
        return sorted((a for a in self.answers if a.drift == drift), key=lambda a: a.at_s)


def _run(
    number: int, rate_per_s: float, method: Method
) -> tuple[list[LiveDrift], list[DriftAnswer]]:
    """Return what became of both drifts in a service of their own, and all answers.

    CircinusError if the query does not serve.
    """
    clock = SystemClock()
    with (
        on_signal(signal.SIGTERM, signal.default_int_handler),  # ends the service as Ctrl-C does
        running_service(calibrated, clock, method, pipeline=_PIPELINE) as client,
    ):
        request = _QUERY.model_copy(update={"request_rate_per_s": rate_per_s})
        query = client.submit(request)
        query = client.wait(query.id, lambda q: q.phase in SETTLED, timeout_s=_PLANNED_WITHIN_S)
        if query.phase is not QueryPhase.SERVING:
            raise CircinusError(f"the query is {query.phase.value}: {query.message}")
        traffic = _Traffic(client, query.id, number, rate_per_s)
        with traffic.flowing():
            rows = []
            for drift, before_s in _BEFORE_S.items():
                _wait_until_steady(traffic, before_s)
                rows.append(_drifted(traffic, drift))
    return rows, sorted(traffic.answers, key=lambda a: a.at_s)


def _wait_until_steady(traffic: _Traffic, seconds: float) -> None:
    """Return once the service searches no more and one plan has answered for so many seconds.

    CircinusError if that takes too long.
    """
    began = since = traffic.now_s()
    plan = None
    while traffic.now_s() < since + seconds:
        if traffic.now_s() > began + _PLANNED_WITHIN_S:
            raise CircinusError(f"no plan has answered for {seconds:g} s")
        query = traffic.client.query(traffic.query_id)
        searching = query.search is not None and query.search.ended is None
        if searching or query.plan_id != plan:
            since, plan = traffic.now_s(), query.plan_id
        traffic.clock.sleep(_LOOK_S)


def _drifted(traffic: _Traffic, drift: str) -> LiveDrift:
    """Return what becomes of a drift that begins now."""
    before = traffic.since(traffic.drift)
    known = len(traffic.client.query(traffic.query_id).replanned)
    old = next((a.plan for a in reversed(before) if a.plan is not None), None)
    if old is None:
        raise CircinusError(f"no request was answered before the drift of the {drift}")
    with thin(traffic.client) if drift == "link" else nullcontext():
        at_s, began = traffic.now_s(), datetime.now(UTC)
        traffic.drift, traffic.seed = drift, NIGHT_SEED if drift == "light" else _DAY_SEED
        while traffic.now_s() < at_s + _WITHIN_S:
            traffic.clock.sleep(_LOOK_S)
            first = _first_of_other(traffic.since(drift), old)
            if first is not None and traffic.now_s() > first.at_s + _SERVES_S:
                break
    since = traffic.since(drift)
    traffic.drift = "between"
    first, new = _first_of_other(since, old), [a for a in since if a.plan != old]
    query = traffic.client.query(traffic.query_id)
    replanned = query.replanned[: len(query.replanned) - known]  # the newest first
    anew = [a for a in replanned if _NAMES[drift] in a.why]
    own, late = ([a for a in each if a.plan == old] for each in (before, since))
    slo = _QUERY.slo
    return LiveDrift(
        run=traffic.run,
        drift=drift,
        at_s=at_s,
        why=anew[-1].why if anew else None,
        noticed_s=(anew[-1].at - began).total_seconds() if anew else None,
        replaced_s=None if first is None else first.at_s - at_s,
        latency_before_s=mean(a.latency_s for a in own),
        latency_drifted_s=mean(a.latency_s for a in late),
        latency_after_s=mean(a.latency_s for a in new),
        latency_slo_s=slo.latency_s or 0.0,
        accuracy_before=mean(a.score for a in own),
        accuracy_drifted=mean(a.score for a in late),
        accuracy_after=mean(a.score for a in new),
        accuracy_slo=slo.accuracy,
        answered=sum(a.plan is not None for a in since),
        refused=sum(a.plan is None for a in since),
        phase=query.phase.value,
        message=query.message,
    )


def _first_of_other(answers: Sequence[DriftAnswer], old: str) -> DriftAnswer | None:
    """Return the first answer of another plan; None: there is none."""
    return next((a for a in answers if a.plan not in (None, old)), None)
