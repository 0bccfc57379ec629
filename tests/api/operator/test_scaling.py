"""A number of replicas is no other query, and is asked for once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from circinus.api.client import Refused
from circinus.api.operator.scaling import PlannedFor, rescale, scale_facts
from circinus.api.phases import QueryPhase
from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.deployments import DeploymentView
from circinus.api.schemas.progress import QueryView
from tests.api.operator.fake_service import FakeService
from tests.api.operator.test_following import NEW, OTHER, SPEC, looked, serving
from tests.api.operator.test_observed import view


class Refusing(FakeService):
    """A service that takes no replicas."""

    status = 409

    def set_replicas(self, query_id: str, replicas: int) -> QueryView:
        raise Refused(ProblemDetails(title="no", status=self.status, detail="no"))


def test_what_was_retired_meanwhile_is_not_scaled_and_other_refusals_are_told() -> None:
    service = Refusing()
    rescale(service, "q-1", has=None, wanted=3)
    service.status = 403
    with pytest.raises(Refused):
        rescale(service, "q-1", has=None, wanted=3)


def test_a_number_is_not_of_what_is_planned() -> None:
    first = PlannedFor.of({**SPEC, "replicas": 3}, 1, {})
    assert (first.spec, first.generation, first.replicas) == (SPEC, 1, 3)
    status = dict(first.facts)
    scaled = PlannedFor.of({**SPEC, "replicas": 4}, 2, status)
    assert (scaled.generation, scaled.replicas) == (1, 4)
    assert PlannedFor.of(SPEC, 3, status).generation == 1
    assert PlannedFor.of(OTHER, 4, status).generation == 4


def test_scaling_a_served_query_plans_nothing_anew() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    service.calls.clear()
    for generation, replicas in ((2, 3), (3, 3), (4, 5)):
        seen = replace(seen, generation=generation, spec={**SPEC, "replicas": replicas})
        seen, told = looked(seen, service)
        assert told == []
    assert [c for c in service.calls if "scale" in c] == ["scale q-1 3", "scale q-1 5"]
    seen, _ = looked(replace(seen, generation=5, spec=SPEC), service)
    assert service.calls[-1] == "unscale q-1" or "unscale q-1" in service.calls
    assert list(service.queries) == ["q-1"]
    looked(replace(seen, generation=6, spec=OTHER), service)
    assert list(service.queries) == ["q-1", "q-2"]


def test_a_query_is_scaled_once_it_is_live() -> None:
    service = FakeService()
    seen, _ = looked(replace(NEW, spec={**SPEC, "replicas": 2}), service)
    assert not [c for c in service.calls if "scale" in c]
    service.move("q-1", QueryPhase.WAITING)
    looked(seen, service)
    assert service.queries["q-1"].replicas == 2


def test_the_scale_tells_workers_and_which_pods_they_are() -> None:
    assert scale_facts("q-1", None) == {"replicas": None, "selector": None}
    found = view().model_copy(update={"replicas": {"edge": 3, "device": 1}, "scaled_tier": "edge"})
    assert scale_facts("q-1", found) == {
        "replicas": 3,
        "selector": "circinus.io/query=q-1,circinus.io/tier=edge",
    }


def test_a_status_tells_what_requests_got_and_how_many_replicas_there_are() -> None:
    service = FakeService()
    seen = serving(service, NEW)
    conditions = {each["type"]: each for each in seen.status["conditions"]}
    assert conditions["ObjectivesMet"]["status"] == "Unknown"
    found = view().model_copy(update={"replicas": {"edge": 3}, "scaled_tier": "edge"})
    deployment = DeploymentView(query_id="q-1", phase="serving", objectives=found)
    service.queries["q-1"] = service.queries["q-1"].model_copy(update={"deployment": deployment})
    seen, _ = looked(seen, service, at=1.0)
    assert (seen.status["replicas"], seen.status["observed"]["state"]) == (3, "missed")
    conditions = {each["type"]: each for each in seen.status["conditions"]}
    met = conditions["ObjectivesMet"]
    assert (met["status"], met["reason"], met["message"]) == ("False", "LatencyMissed", "so it is")
