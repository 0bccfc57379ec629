"""Stand-ins for what a service meets: a deployer without processes, a catalogue of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from circinus.api.phases import QueryPhase
from circinus.api.settings import Settings
from circinus.api.store.records import NewQuery, PlanningEnding, to_document
from circinus.api.store.store import Store
from circinus.api.use_cases.deployer import DesiredRoute
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.routes.routed import RouteStatus
from circinus.deploy.runtime.deployment import DeploymentPhase, DeploymentStatus
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.learning import ObservedWorkload
from circinus.deploy.runtime.report import LATEST_ANSWERS, DeploymentReport, LatestAnswers
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from circinus.pipelines.execution.pipeline import Checked, Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec
from circinus.pipelines.model.operators import Settings as KnobSettings
from circinus.pipelines.model.payload import Payload, encode
from circinus.pipelines.model.plan import DemandItem, Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.result import PlanningOutcome, PlanningResult, PlanningSummary
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.rolling.scheduler import Upkeep
from tests.contracts.databases import opened


def _add(inputs: Payload, knobs: KnobSettings) -> Payload:
    if not isinstance(inputs, int):
        raise TypeError("must get a whole number")
    # Fast machines add two numbers in less than 1e-6 s, the least SLO on latency; a sleep of
    # microseconds would take milliseconds on a busy one.
    return sum(range(1000)) * 0 + inputs + int(knobs["by"])


PIPELINE = Pipeline(
    name="add",
    operators=(
        Operator(spec=OperatorSpec(name="add", knobs=(Knob(name="by", values=(0, 1)),)), run=_add),
    ),
    score=lambda output, expected: float(output == expected),
    examples=lambda count, seed: Dataset(
        name="numbers", examples=[Example(input=i, expected=i + 1) for i in range(count)]
    ),
)


def _refuse(inputs: Sequence[Payload]) -> Checked:
    raise InvalidInput.of("operator add", "must be right", inputs[0])


TOLD = replace(PIPELINE, remarks=lambda inputs: Checked((f"saw {len(inputs)} inputs",), ("add",)))
REFUSED = replace(PIPELINE, remarks=_refuse)
WITHOUT_DATA = Pipeline(name="bare", operators=PIPELINE.operators, score=PIPELINE.score)
INFRASTRUCTURE = Infrastructure(
    name="one", tiers=(Tier(name="cloud", machines=1, price_usd_per_hour=1.0),)
)
SPEC: dict[str, object] = {
    "pipeline": "add",
    "data": {"examples": 10},
    "slo": {"accuracy": 0.5, "latency_s": 1.0},
}


@dataclass
class FakeCatalogue:
    pipelines: dict[str, Pipeline | CircinusError] = field(
        default_factory=lambda: {"add": PIPELINE, "bare": WITHOUT_DATA}
    )
    references: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.pipelines))

    def pipeline(self, name: str) -> Pipeline:
        found = self.pipelines[name]
        if isinstance(found, CircinusError):
            raise found
        return found

    def reference(self, name: str) -> str:
        if name not in self.pipelines:
            raise InvalidInput.of("pipeline", "must be registered", name)
        return self.references.get(name, name)


@dataclass
class FakeDeployer:
    """A `Deployer` and `RequestServer`: runs the pipeline in place, but no plans of `broken`."""

    broken: set[str] = field(default_factory=set)
    desired: dict[str, DesiredDeployment] = field(default_factory=dict)
    applied: int = 0
    emulated: Infrastructure | None = None
    withheld: set[str] = field(default_factory=set)
    reported: dict[str, DeploymentReport] = field(default_factory=dict)  # of what serves
    workloads: dict[str, ObservedWorkload] = field(default_factory=dict)
    applied_routes: dict[str, DesiredRoute] = field(default_factory=dict)
    generation: int = 0

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        self.applied += 1
        self.desired = dict(desired)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        if query_id not in self.desired:
            raise InvalidInput.of("query", "must be deployed", query_id)
        if self._status(query_id).phase is not DeploymentPhase.SERVING:
            raise Unavailable("it does not serve", retry_after_s=2.5)
        output = PIPELINE.run(input, self.desired[query_id].plan.configuration)
        return RequestResult(
            encoded=encode(output),
            latency_s=0.25,
            operator_s={"add": 0.2},
            tier_s={"cloud": 0.2},
            path_operator_s=0.2,
            waiting_s=0.0,
            transfer_s=0.0,
            overhead_s=0.05,
            retries=0,
        )

    async def withhold(self, query_id: str) -> None:
        self.withheld.add(query_id)

    async def emulate(self, infrastructure: Infrastructure) -> None:
        self.emulated = infrastructure

    async def serving(self) -> dict[str, str]:
        plans = {query_id: desired.plan.id for query_id, desired in self.desired.items()}
        return {
            query_id: plan_id for query_id, plan_id in plans.items() if plan_id not in self.broken
        }

    def plan_serving(self, query_id: str) -> str | None:
        desired = self.desired.get(query_id)
        serves = query_id not in self.withheld and desired is not None
        return desired.plan.id if serves and desired is not None else None

    def shed_infeasible(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        """All are answered."""

    async def reports(self) -> dict[str, DeploymentReport]:
        return self.reported

    def report(self, query_id: str, **figures: object) -> DeploymentReport:
        """Change the report of a query, empty at first."""
        plan_id = self.desired[query_id].plan.id if query_id in self.desired else "p"
        before = self.reported.get(query_id, DeploymentReport(plan_id=plan_id))
        found = self.reported[query_id] = replace(before, **figures)  # type: ignore[arg-type]  # its fields
        return found

    async def workload(self, query_id: str) -> ObservedWorkload | None:
        return self.workloads.get(query_id)

    async def apply_routes(self, desired: Mapping[str, DesiredRoute]) -> None:
        self.applied_routes = dict(desired)

    async def routes(self) -> dict[str, RouteStatus | str]:
        return dict.fromkeys(self.applied_routes, "its workers start")

    async def status(self, query_id: str) -> DeploymentStatus | None:
        return self._status(query_id) if query_id in self.desired else None

    def _status(self, query_id: str) -> DeploymentStatus:
        plan_id = self.desired[query_id].plan.id
        if plan_id in self.broken:
            return DeploymentStatus(
                phase=DeploymentPhase.FAILED, plan_id=plan_id, reason="no such program"
            )
        report = self.reported.get(query_id)
        return DeploymentStatus(phase=DeploymentPhase.SERVING, plan_id=plan_id, report=report)

    async def close(self) -> None:
        self.desired = {}


def answers(*latency_s: float, usd: float = 0.0) -> LatestAnswers:
    """Return answers of each second until now, on tier cloud alone."""
    rows = tuple((float(at), each, each, 0.0, usd, each) for at, each in enumerate(latency_s))
    return LatestAnswers(at=float(len(rows)), tiers=("cloud",), rows=rows[-LATEST_ANSWERS:])


def plan(*, share: float = 0.5, by: int = 1) -> Plan:
    deployment = Deployment(
        placement={"add": "cloud"}, allocation={"add": share}, replicas={"add": 1}
    )
    return Plan(
        pipeline="add",
        configuration=Configuration((("add", "by", by),)),
        deployment=deployment,
        demand=(DemandItem("cloud", share),),
        accuracy=Estimate(value=1.0, low=0.9, high=1.0, confidence=0.95, inputs=10),
        latency_s=Estimate(
            value=0.2, low=float("-inf"), high=float("inf"), confidence=0.95, inputs=1
        ),
        cost_usd_per_hour=share,
        tier_service_s={"cloud": 0.2},
    )


def result(*plans: Plan) -> PlanningResult:
    return PlanningResult(
        outcome=PlanningOutcome.FEASIBLE,
        plans=plans,
        measured=2,
        failed=0,
        inputs=20,
        spent_s=1.5,
        stopped_because="everything was measured",
        shortfall=None,
    )


def sql_store(folder: Path) -> Store:
    return Store(opened(f"sqlite:///{folder / 'store.sqlite3'}"))


def add_planned(
    store: Store, query_id: str, *plans: Plan, at: float = 0.0, **spec: object
) -> None:
    """Put a query into the store that a worker has planned."""
    store.submit(
        NewQuery(
            id=query_id, spec={**SPEC, **spec}, fingerprint=query_id, idempotency_key=None, at=at
        )
    )
    claimed = store.queue.claim("w", at=at)
    assert claimed is not None
    assert claimed.id == query_id
    documents = tuple((each.id, to_document(each)) for each in plans)
    ending = PlanningEnding(
        phase=QueryPhase.WAITING,
        message="planned",
        result=to_document(PlanningSummary.of(result(*plans))),
        plans=documents,
    )
    assert store.queue.finish(query_id, "w", ending, at=at)


def parts(folder: Path, settings: Mapping[str, object]) -> ServiceParts:
    return parts_of(sql_store(folder), folder, ManualClock(1000.0), settings)


def planning_parts(folder: Path) -> ServiceParts:
    """Return what a planning worker of the same database is made of."""
    made = parts_of(sql_store(folder), folder, ManualClock())
    return replace(made, catalogue=FakeCatalogue({"add": PIPELINE}))


def parts_of(
    store: Store,
    folder: Path,
    clock: ManualClock,
    settings: Mapping[str, object] | None = None,
    **others: object,
) -> ServiceParts:
    """Return the parts of a service with that store, on one machine of one tier."""
    url = f"sqlite:///{folder / 'store.sqlite3'}"
    # The pipelines of tests are made in them: no fresh process could load them.
    told = {"database_url": url, "executor": "in-process", **(settings or {})}
    made = ServiceParts(
        settings=Settings(**told),  # type: ignore[arg-type]  # each checked by pydantic
        infrastructure=INFRASTRUCTURE,
        catalogue=FakeCatalogue(),
        store=store,
        clock=clock,
        upkeep=Upkeep(policy=Greedy()),
    )
    return replace(made, **others)  # type: ignore[arg-type]  # fields of it
