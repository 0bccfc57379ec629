"""The demo: a service of its own plans, deploys and serves queries of `digits` over HTTP.

It prints only the service's answers, and leaves nothing behind when it ends.
"""

from __future__ import annotations

import signal
import webbrowser
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from circinus.api.bootstrap.execution import CalibrationSampling, calibrated_infrastructure
from circinus.api.client import Client
from circinus.api.demo.cases import (
    CASES,
    CONTESTED,
    DRIFTING,
    EXAMPLES,
    HELD_OUT_SEED,
    INPUTS,
    PIPELINE,
    PLANNING_SEED,
    THIN_MBIT_PER_S,
    THINNED,
    DemoCase,
    demo_infrastructure,
)
from circinus.api.demo.changes import MissingMachines, ThinnedLink, take_machines, thin_link
from circinus.api.demo.report import Report, ServedQuery, comparison, problems_of
from circinus.api.demo.sending import example_body, send
from circinus.api.demo.service import running_service
from circinus.api.phases import SETTLED, QueryPhase
from circinus.api.schemas.deployments import RequestReply
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import QueryView
from circinus.api.text import formats, tables, tiers
from circinus.api.text.screen import Follow, on_signal
from circinus.deploy.methods import Method
from circinus.deploy.profiling.calibration import CalibrationSettings
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.registry import load_pipeline

_SETTLED_WITHIN_S = 300.0
_POLL_S = 0.25
_SAMPLING = CalibrationSampling(configurations=8, inputs=1, seed=PLANNING_SEED)
_CALIBRATION = CalibrationSettings(repetitions=4, share=0.1, pause_s=0.03)
"""Enough to distinguish served from profiled, see `circinus calibrate`. At a small share larger
ones are predicted slower than they are."""


def run(
    console: Console, method: Method | None = None, *, keep: bool = False, show: bool = False
) -> Report:
    """Run the demo on a console; leaves nothing behind, also when interrupted.

    Without a method the service uses that of the environment. With `keep` the service stays up
    at the end until interrupted; with `show` its page is opened in a browser, if there is one.
    """
    clock = SystemClock()
    start = clock.now()
    with (
        on_signal(signal.SIGTERM, signal.default_int_handler),  # ends it as Ctrl-C does, in order
        running_service(lambda: _calibrated(console), clock, method) as client,
    ):
        demo = _Demo(console, client, clock, client.method())
        report = demo.run(start, show=show)
        if keep:
            address = client.base_url
            console.print(f"\n  The service stays up: {address}/ has its page. Ctrl-C stops it.")
            with suppress(KeyboardInterrupt):  # which here is how it ends and no failure
                Event().wait()
    return report


def _calibrated(console: Console) -> Infrastructure:
    _heading(console, 1, "How fast this computer serves")
    infrastructure = calibrated()
    as_is = next(tier for tier in infrastructure.tiers if not tier.emulated)
    console.print(
        f"  In served requests operators take {1 / as_is.speed_factor:.2f} times as long as in "
        "a profile, each its own:\n  measured on a worker like those that serve, and planned with."
    )
    return infrastructure


def calibrated() -> Infrastructure:
    """Return the demo's infrastructure with factors from profiled to served seconds."""
    with TemporaryDirectory(prefix="circinus-demo-") as logs:
        infrastructure = calibrated_infrastructure(
            demo_infrastructure(),
            (PIPELINE, load_pipeline(PIPELINE)),
            _SAMPLING,
            _CALIBRATION,
            addresses={},
            logs=Path(logs),
        )
    # The objective was chosen for the stated cost of calls: few requests measure it badly.
    stated = zip(infrastructure.tiers, demo_infrastructure().tiers, strict=True)
    calls = ("call_s", "call_s_per_byte", "call_delay_s")
    tiers = [replace(t, **{name: getattr(s, name) for name in calls}) for t, s in stated]
    return replace(infrastructure, tiers=tuple(tiers))


@dataclass(slots=True)
class _Demo:
    """The queries of the demo at a service, step by step; each step shows its result."""

    console: Console
    client: Client
    clock: Clock
    method: MethodView  # of the service
    cases: dict[str, DemoCase] = field(default_factory=dict)  # by the ids of their queries
    queries: dict[str, QueryView] = field(default_factory=dict)  # as of the latest poll
    plans: dict[str, PlanView] = field(default_factory=dict)  # that served first
    problems: list[str] = field(default_factory=list)  # what did not work, in words

    def run(self, start: float, *, show: bool) -> Report:
        """Run all steps and return their results; `start` is when they began on the clock."""
        self._introduce(show=show)
        self._submit()
        self._wait()
        self.problems += self._unexpected()
        all_serve = not self.problems
        self._show_plans()
        served = self._serve()
        self.problems += problems_of(served)
        link = machines = None
        if all_serve:  # who is not served cannot make way
            link, machines = self._thin(), self._take()
        elapsed_s = self.clock.now() - start
        self._conclude(elapsed_s)
        return Report(
            served=served,
            problems=self.problems,
            elapsed_s=elapsed_s,
            method=self.method,
            link=link,
            machines=machines,
        )

    def _introduce(self, *, show: bool) -> None:
        console, client = self.console, self.client
        _heading(console, 2, "A service on this computer")
        console.print(f"  Its page is at {client.base_url}/ as long as the demo runs.")
        if show:
            with suppress(webbrowser.Error):
                webbrowser.open(f"{client.base_url}/")
        planned, scheduled, dispatched = formats.method(self.method)
        console.print(f"  Queries are {planned},\n  {scheduled}, {dispatched}.")
        console.print(tiers.tiers_table(client.infrastructure()))

    def _submit(self) -> None:
        _heading(self.console, 3, f"{len(CASES)} queries, all but one compete for the tiers")
        for case in CASES:
            query = self.client.submit(case.request)
            self.cases[query.id] = case
            self.console.print(
                f"  {case.name:<12}{case.story}\n  {'':<12}{formats.objectives(case.request)}"
            )

    def _wait(self) -> None:
        """Return once each query is served or can no longer be."""
        _heading(self.console, 4, "Planning and deployment")
        console, client = self.console, self.client
        console.print(f"  Each is planned on {INPUTS} clips of seed {PLANNING_SEED}.")
        deadline = self.clock.now() + _SETTLED_WITHIN_S
        with Follow(console) as lines, ThreadPoolExecutor(1) as pool:
            body = example_body(0, EXAMPLES, seed=HELD_OUT_SEED)
            first: Future[RequestReply] | None = None  # whose clips are drawn for all, meanwhile
            while True:
                self.queries = {each: client.query(each) for each in self.cases}
                phases = {i: (q.phase, tables.progress_line(q)) for i, q in self.queries.items()}
                lines.update(self._named(phases))
                serving = [i for i, q in self.queries.items() if q.phase is QueryPhase.SERVING]
                if first is None and serving:
                    first = pool.submit(client.request, serving[0], body)
                settled = all(query.phase in SETTLED for query in self.queries.values())
                if settled or self.clock.now() > deadline:
                    return
                self.clock.sleep(_POLL_S)

    def _unexpected(self) -> Iterator[str]:
        """Yield what did not become of the queries, in words."""
        for query_id, query in self.queries.items():
            case = self.cases[query_id]
            if query.phase is not case.ends:
                reason = f": {query.message}" if query.message else ""
                yield f"{case.name} is {query.phase.value}, should be {case.ends.value}{reason}"
                continue
            binding = query.shortfall is not None and query.shortfall.binding
            if query.phase is QueryPhase.INFEASIBLE and not binding:
                yield f"{case.name} is infeasible, without a binding objective"

    def _show_plans(self) -> None:
        """Show the plan of every query that the schedule chose, and why there is none."""
        console, client = self.console, self.client
        _heading(console, 5, "Plans: which of its Pareto set each query got, and where")
        rows = []
        for query_id, query in self.queries.items():
            if query.plan_id is None:
                continue
            plans = client.plans(query_id).items
            plan = client.plan(query.plan_id)  # by now others may have its place
            self.plans[query_id] = plan
            name, share = self.cases[query_id].name, f"1 of {len(plans)}"
            rows.append((name, share, formats.where(plan), *_figures(plan)))
        columns = ("query", "plan", "tier, share: operators", "accuracy", "latency", "cost")
        console.print(tables.table(None, *columns, right=[3, 4, 5], rows=rows))
        for query_id, query in self.queries.items():
            if (short := query.shortfall) is not None:
                ending = f"{self.cases[query_id].name} is {query.phase.value}."
                self._say(f"{ending} Binding: {', '.join(short.binding)}. {short.sentence}")

    def _serve(self) -> list[ServedQuery]:
        """Send requests to what serves; return what was observed."""
        console, client, every = self.console, self.client, EXAMPLES
        _heading(console, 6, "Requests, on clips that nothing was planned on")
        serving = [q for q in self.queries.values() if q.phase is QueryPhase.SERVING]
        done = {query.id: 0 for query in serving}
        with Follow(console) as lines, ThreadPoolExecutor(len(serving) or 1) as pool:

            def tell(query_id: str, number: int, _all: int) -> None:
                done[query_id] = number
                counts = {
                    i: (str(n == every), f"{n} of {every} requests") for i, n in done.items()
                }
                lines.update(self._named(counts))

            # Side by side: most of their time is waiting, for a device or edge that is emulated.
            sent = [
                pool.submit(send, client, query.id, every, tell, seed=HELD_OUT_SEED)
                for query in serving
            ]
        served = []
        for query, each in zip(serving, sent, strict=True):
            name, plan = self.cases[query.id].name, self.plans[query.id]
            served.append(ServedQuery(name=name, query=query, plan=plan, observed=each.result()))
        console.print(*comparison(served), sep="\n")
        return served

    def _thin(self) -> ThinnedLink:
        """Thin a link until the service has replaced the plan that it makes late."""
        _heading(self.console, 7, "A link thins, unknown to planning")
        name = DRIFTING.name
        (query_id,) = (each for each, case in self.cases.items() if case is DRIFTING)
        ends = " and ".join(THINNED)
        self.console.print(f"  Between {ends} {THIN_MBIT_PER_S:g} Mbit/s are left, for a while.")
        link = thin_link(self.client, query_id, self.clock)
        if (new := link.after) is None:
            reason = f"nothing in {link.requests} requests" if link.why is None else link.why
            self.problems.append(f"{name} was not moved from the thinner link: {reason}")
            return link
        notice = f"After {link.requests} requests to {name} the service had noticed: {link.why}."
        self._say(f"{notice} It replaced the plan while that served:")
        self._say(f"  old  {formats.where(link.before)}; {', '.join(_figures(link.before))}")
        self._say(f"  new  {formats.where(new)}; {', '.join(_figures(new))}")
        return link

    def _take(self) -> MissingMachines:
        """Remove machines and restore them; print the displaced queries."""
        _heading(self.console, 8, "Machines are removed and restored")
        ids = [i for i, case in self.cases.items() if case.ends is QueryPhase.SERVING]
        machines = take_machines(self.client, ids, self.clock)
        before, left = machines.machines
        self.console.print(f"  Of {before} machines of tier {CONTESTED} there are {left} left.")
        for sentence in machines.made_way:
            self._say(sentence)
        for query_id, reason in machines.waiting:
            self._say(f"{query_id} waits: {reason}")
        if not machines.made_way:
            self.problems.append(f"no query was displaced when {CONTESTED} lost machines")
        if machines.all_back:
            self.console.print("  With all machines back, everybody is served again.")
        else:
            self.problems.append("not everybody is served again with all machines back")
        return machines

    def _conclude(self, elapsed_s: float) -> None:
        if not self.problems:
            text = f"Everything worked ({elapsed_s:.0f} s)."
            self.console.print(Text(f"\n{text}", style="bold green"))
            return
        self.console.print(Text("\nThis did not work:", style="bold red"))
        for problem in self.problems:
            self.console.print(f"  {problem}", soft_wrap=True)

    def _named(self, lines: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Return lines by the names of queries, in a column, in place of their ids."""
        return {f"{self.cases[each].name:<10}": line for each, line in lines.items()}

    def _say(self, sentence: str) -> None:
        """Print the service's words, with names in place of the ids of queries."""
        for query_id, case in self.cases.items():
            sentence = sentence.replace(query_id, case.name)
        self.console.print(Padding(Text(sentence), (0, 2)))


def _figures(plan: PlanView) -> tuple[str, str, str]:
    return (
        formats.fraction(plan.accuracy.value),
        formats.seconds(plan.latency_s.value),
        formats.cost(plan),
    )


def _heading(console: Console, number: int, text: str) -> None:
    console.print()
    console.print(Rule(f"{number}. {text}", align="left"))
