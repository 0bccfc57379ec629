"""What the study of goodput runs: settings, and methods with their policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from circinus.deploy.methods import DEFAULT, METHODS
from circinus.pipelines import checks
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.scheduler.problem import SCHEDULING_POLICIES, Objective
from circinus.studies.online.arrivals import ArrivalKind
from circinus.studies.online.computing import table
from circinus.studies.online.planned import ORACLE
from circinus.studies.planning.ground_truth import level_factors
from circinus.studies.planning.methods import study_method


@dataclass(frozen=True, slots=True)
class Competitor:
    """A method and the policy that schedules what it planned."""

    name: str
    method: str
    policy: str

    @classmethod
    def of(cls, name: str) -> Competitor:
        """Return that of `METHOD` or `METHOD/POLICY`; InvalidInput if there is no such one.

        Without a policy a method of the product has its own, and others have that of `default`
        (Circinus 6.1 gives competitors its own multi-query planner).
        """
        method, slash, policy = name.partition("/")
        if method != ORACLE:
            study_method(method, published_inputs=1)
        if not slash:
            policy = METHODS.get(method, DEFAULT).scheduling
        checks.among("methods", policy, SCHEDULING_POLICIES)
        return cls(name, method, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputStudy:
    """What to run; InvalidInput for an unknown method or level now, not hours later."""

    traces: tuple[Path, ...]  # folders
    methods: tuple[str, ...]  # see `Competitor.of`
    infrastructure: Infrastructure
    response_s: tuple[float, ...] = (5.0, 15.0)  # within which a query is planned, `> 0`
    levels: tuple[str, ...] = ("medium",)  # of SLOs, see `ground_truth.level_factors`
    loads: tuple[float, ...] = (1.0,)
    history: tuple[int, ...] = (0,)  # earlier queries of each
    seeds: int = 5
    first_seed: int = 0
    queries: int = 40  # unlike ones of a seed; arrivals are drawn among them
    arrivals: ArrivalKind = ArrivalKind.POISSON
    times: tuple[float, ...] | None = None  # of arrival, in place of load and process
    # of the machines there are, or cost of serving all on rented ones
    objective: Objective = Objective.GOODPUT
    # of moving what runs, see `scheduler.policies.priced.Migration`; None: nothing is moved
    migration_price: float | None = None
    window_s: float = 3600.0
    stay_s: float = 900.0  # mean
    # minutes between problems that the integer program solves, too; None: none
    ilp_every: int | None = None
    ilp_s: float = 20.0  # its limit, for each

    def __post_init__(self) -> None:
        lists = {
            "trace": [folder.name for folder in self.traces],
            "methods": self.methods,
            "slo": self.levels,
            "response": self.response_s,
            "load": self.loads,
            "history": self.history,
        }
        for name, values in lists.items():
            checks.require(len(values) > 0, name, "must not be empty", values)
            checks.unique(name, values)
        for name in self.methods:
            method = Competitor.of(name).method
            known = sorted({ORACLE, *(who for who, _ in table())})
            checks.among("methods", method, known)
        for level in self.levels:
            level_factors(level)
        for seconds in self.response_s:
            checks.positive("response", seconds)
        for load in self.loads:
            checks.positive("load", load)
        for count in self.history:
            checks.non_negative("history", count)
        checks.at_least("queries", self.queries, 1)
        checks.positive("window", self.window_s)
        checks.positive("stay", self.stay_s)
        if self.migration_price is not None:
            checks.non_negative("migration_price", self.migration_price)
        checks.at_least("ilp_every", self.ilp_every, 1)
        of_goodput = self.objective is Objective.GOODPUT or self.ilp_every is None
        rule = "must be left out where the objective is cost: its figure is of goodput"
        checks.require(of_goodput, "ilp_every", rule, self.ilp_every)
        if self.times is not None:
            rule = "must be left out, or 1, where arrivals are from a file"
            checks.require(self.loads == (1.0,), "load", rule, self.loads)
            rule = f"must begin within the window of {self.window_s:g} s"
            checks.require(self.times[0] < self.window_s, "arrivals", rule, self.times[0])

    @property
    def halved(self) -> bool:
        """Whether queries are of half of the inputs, as earlier ones are of the other half."""
        return any(self.history)
