"""What a result says, shows, saves and hands back."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fastapi.testclient import TestClient
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output

import circinus
from circinus import InvalidInput, Knob, Operator, OperatorSpec, Pipeline, Planned
from circinus.api.control.planning_worker import plan_next
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.store.records import NewQuery
from circinus.pipelines.io.presets import PRESETS
from tests.api.fakes import PIPELINE, SPEC, FakeDeployer, parts, planning_parts
from tests.api.library.conftest import PAIRS, cased, exact

# --- Questions -------------------------------------------------------------------------


def test_a_plan_that_is_not_there_is_refused(planned: Planned, missed: Planned) -> None:
    with pytest.raises(InvalidInput, match=r"plan must be one of p-.*, got 'p-0'"):
        planned.explain("p-0")
    with pytest.raises(InvalidInput, match="plan must be there: no plan was found"):
        missed.explain()
    with pytest.raises(InvalidInput, match="plan must be there: no plan was found"):
        missed.as_runnable()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"latency": "fast"}, r"latency must be like 0\.8x"),
        ({"latency": -1}, "latency must be >= 0, or text such as '-2'"),
        ({"latency": float("nan")}, "latency must be >= 0, or text"),
        ({"price": {"moon": "2x"}}, "price must name a tier"),
        ({"machines": {"mec": 0.5}}, r"machines\.mec must leave a whole number"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    planned: Planned, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        planned.whatif(**change)


def test_a_number_means_exactly_that(planned: Planned) -> None:
    assert planned.whatif(latency=0.25) == planned.whatif(latency="0.25")
    assert planned.whatif(latency=1e-6).shortfall is not None


def test_rates_are_asked_for_by_their_ends(planned: Planned) -> None:
    with pytest.raises(InvalidInput, match="rate must be LOW:HIGH with LOW < HIGH"):
        planned.whatif(rate=(2, 1))
    rates = planned.whatif(rate=(0.1, 2))
    assert rates.break_even is not None
    assert rates.break_even.words in str(rates)
    assert (rates.break_even.low, rates.break_even.high) == (0.1, 2.0)


def test_an_explanation_tells_of_every_operator_and_prints_as_the_command_line(
    planned: Planned,
) -> None:
    found = planned.explain(planned.best)

    assert [part.operator for part in found.operators] == ["tidy", "case"]
    assert planned.explain(planned.front[0].id) == found
    assert "Elsewhere" in str(found)
    assert "planned by default" in repr(found)


SERVED: dict[str, Any] = {"accuracy": 0.5, "latency_s": 1.0, "cold": True}


def test_answers_are_those_of_a_service_that_measured_the_same(tmp_path: Path) -> None:
    made, planning = parts(tmp_path, {}), planning_parts(tmp_path)
    made.store.submit(NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0))
    assert plan_next(planning, "w")
    client = TestClient(application_of(Service(made, FakeDeployer())), base_url="http://127.0.0.1")
    change: dict[str, Any] = {"accuracy": "+0.05", "price": {"cloud": "2x"}}
    served = client.post("/v1/queries/q-1:whatif", json=change).json()
    result = circinus.plan(PIPELINE, 10, **SERVED, infrastructure=made.infrastructure)
    found = result.whatif(**change)
    answered = found.model_dump(mode="json")
    planning.store.close()
    made.store.close()

    # What was measured in two processes took two times: all that does not follow from seconds.
    for each in (served, answered):
        for plans in (each["before"], each["after"]):
            for plan in plans:
                del plan["latency_s"], plan["tier_service_s"], plan["future"]
                del plan["cost_usd_per_1000_requests"]  # of requests one after the other
    assert served["before"] != served["after"]
    assert answered == served


def test_a_result_that_is_read_answers_as_the_service_does_from_the_same_measurements(
    tmp_path: Path,
) -> None:
    """To the last digit: the service's measurements in a file of ours."""
    made, planning = parts(tmp_path, {}), planning_parts(tmp_path)
    made.store.submit(NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0))
    assert plan_next(planning, "w")
    client = TestClient(application_of(Service(made, FakeDeployer())), base_url="http://127.0.0.1")
    change: dict[str, Any] = {"latency": "0.5x", "speed": {"cloud": "2x"}}
    served = client.post("/v1/queries/q-1:whatif", json=change).json()
    plan_id = client.get("/v1/queries/q-1/plans").json()["items"][0]["id"]
    explained = client.get(f"/v1/plans/{plan_id}/explanation").json()
    from circinus.api.library.findings import PlannedFindings, text_of
    from circinus.api.store.journal import edition_of
    from circinus.api.use_cases.knowledge import Knowledge
    from circinus.pipelines.model.query import Query
    from circinus.planner.search.result import PlanningOutcome, PlanningResult

    record = made.store.query("q-1")
    query: Query = record.query
    result = PlanningResult(
        outcome=PlanningOutcome.FEASIBLE,
        plans=tuple(stored.plan for stored in made.store.plans("q-1")),
        measured=1,
        failed=0,
        inputs=10,
        spent_s=0.0,
        stopped_because="",
        shortfall=None,
    )
    measured = made.store.journal("q-1", edition_of(PIPELINE)).everything()
    found = PlannedFindings(
        request=record.request,
        query=query,
        infrastructure=made.infrastructure,
        graph=PIPELINE.graph,
        drawing=Knowledge.of(made, record).drawing,
        result=result,
        trials=(),
        measured=tuple(measured),
        interrupted=False,
    )
    planning.store.close()
    made.store.close()
    path = tmp_path / "plan.json"
    path.write_text(text_of(found))

    read = circinus.load(path)

    assert read.whatif(**change).model_dump(mode="json") == served
    assert read.explain(plan_id).model_dump(mode="json") == explained


# --- The user's own chain --------------------------------------------------------------


def test_a_runnable_of_nothing_is_refused_where_the_chain_is_not_at_hand(
    planned: Planned, tmp_path: Path
) -> None:
    planned.save(tmp_path / "p.json")

    with pytest.raises(InvalidInput, match="of must be the chain or pipeline: a file holds none"):
        circinus.load(tmp_path / "p.json").as_runnable()


def test_the_chain_comes_back_configured_as_by_hand(planned: Planned, tmp_path: Path) -> None:
    by_hand = cased().with_config(configurable={"case": "upper"})
    planned.save(tmp_path / "p.json")
    read = circinus.load(tmp_path / "p.json")

    for text, _ in PAIRS:
        wanted = by_hand.invoke(text)
        assert planned.as_runnable().invoke(text) == wanted
        assert planned.as_runnable(planned.front[-1]).invoke(text) == wanted
        assert read.as_runnable(of=cased()).invoke(text) == wanted


def test_a_pipeline_comes_back_as_a_runnable() -> None:
    spec = OperatorSpec(name="plus", knobs=(Knob(name="by", values=(0, 1)),))
    run = Operator(spec=spec, run=lambda number, knobs: int(str(number)) + int(knobs["by"]))
    pipeline = Pipeline(name="plus", operators=(run,), score=exact)

    result = circinus.plan(pipeline, [(n, n + 1) for n in range(9)], accuracy=0.5, latency_s=1.0)

    assert result.as_runnable().invoke(4) == 5


# --- Frames, drawings, shells, notebooks -----------------------------------------------


def test_a_frame_without_pandas_says_how_to_get_it(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("circinus.pipelines.execution.needs.find_spec", lambda name: None)

    with pytest.raises(InvalidInput, match=r"pandas \(pip install 'circinus\[notebook\]'\)"):
        planned.to_frame()


def test_only_what_there_is_can_be_framed_and_drawn(planned: Planned) -> None:
    which: Any = "back"
    for what in (planned.to_frame, planned.plot):
        with pytest.raises(InvalidInput, match="which must be among front, search, got 'back'"):
            what(which)


def test_a_frame_has_a_row_for_each_plan_by_its_id(planned: Planned, missed: Planned) -> None:
    frame = planned.to_frame()

    assert isinstance(frame, pd.DataFrame)
    assert list(frame.index) == [plan.id for plan in planned.front]
    row = frame.iloc[0]
    assert row["accuracy"] == 1.0
    assert row["accuracy low"] <= 1.0 <= row["accuracy high"]
    assert row["case.case"] == "upper"
    assert row["tidy on"] == planned.front[0].placement["tidy"]
    assert missed.to_frame().empty
    assert len(missed.to_frame("search")) == len(missed.trials)


def test_a_shell_shows_plans_and_what_is_missing(planned: Planned, missed: Planned) -> None:
    assert planned.front[0].id in repr(planned)
    assert "asked: accuracy >= 0.8, mean latency <= 500 ms" in repr(planned)
    assert repr(planned.best).startswith(f"{planned.front[0].id}: accuracy 1.000")
    assert "case.case=upper" in str(planned.best)
    assert "Closest measured plan" in repr(missed)
    assert max(map(len, repr(planned).splitlines())) <= 100


def test_what_came_from_users_is_escaped_in_a_notebook() -> None:
    evil = "<script>alert(1)</script>"
    spec = OperatorSpec(name="plus", knobs=(Knob(name="by", values=(evil,)),))
    run = Operator(spec=spec, run=lambda number, knobs: number)
    pipeline = Pipeline(name="plus", operators=(run,), score=exact)

    result = circinus.plan(pipeline, [(1, 1), (2, 2)], accuracy=0.5, latency_s=1.0)

    html = result._repr_html_()
    assert "plus.by=&lt;script&gt;" in html
    assert "<script" not in html
    assert "<script" not in result.plot()._repr_svg_()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A kernel's kind of shell: no terminal, and what is displayed is published."""
    before = dict(vars(builtins))
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()
    for name in vars(builtins).keys() - before.keys():
        delattr(builtins, name)
    builtins.__dict__.update(before)


def _shown(shell: InteractiveShell, code: str) -> CapturedIO:
    with capture_output() as captured:
        done = shell.run_cell(code)  # type: ignore[no-untyped-call]  # IPython's
    done.raise_error()
    return captured


def test_a_notebook_shows_a_bar_that_is_renewed_and_a_table(
    shell: InteractiveShell, planned: Planned
) -> None:
    shell.user_ns |= {"circinus": circinus, "chain": cased(), "pairs": PAIRS, "exact": exact}
    call = "found = circinus.plan(chain, pairs, accuracy=0.8, latency_s=0.5, score=exact{})"

    seen = _shown(shell, call.format(""))

    pages = [output.data.get("text/html", "") for output in seen.outputs]
    bars = [page for page in pages if "<progress" in page]
    assert len(bars) >= 2
    assert "starting" in bars[0]
    assert "finished, " in bars[-1]
    assert shell.display_formatter is not None
    shown, _ = shell.display_formatter.format(shell.user_ns["found"])  # type: ignore[no-untyped-call]  # IPython's
    assert "<table>" in shown["text/html"]
    assert "case.case=upper" in shown["text/html"]
    assert shown["text/plain"] == repr(shell.user_ns["found"])
    drawn, _ = shell.display_formatter.format(shell.user_ns["found"].plot())  # type: ignore[no-untyped-call]  # IPython's
    assert drawn["image/svg+xml"].startswith("<svg")
    assert seen.stderr == ""

    quiet = _shown(shell, call.format(", progress=False"))
    assert not [o for o in quiet.outputs if "<progress" in o.data.get("text/html", "")]


# --- Files -----------------------------------------------------------------------------


@pytest.fixture
def file(planned: Planned, tmp_path: Path) -> Path:
    planned.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(InvalidInput, match="file must be a readable file"):
        circinus.load(path)
    with pytest.raises(InvalidInput, match="file must be a file, not a folder"):
        circinus.load(tmp_path)
    for text in ("", "{", "[" * 100_000, "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(InvalidInput, match="file must be JSON"):
            circinus.load(path)
    for text in ("[]", "3", "{}", '{"circinus_plan": 2}'):
        path.write_text(text)
        with pytest.raises(InvalidInput, match=r"file\.circinus_plan must be a plan .* of form 1"):
            circinus.load(path)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (["extra"], 1, "extra must be one of the known fields"),
        (["result"], None, "result must be"),
        (["result", "outcome"], "splendid", r"PlanningResult\.outcome must be valid"),
        (["result", "plans", 0, "accuracy", "low"], 7, "must lie within its interval"),
        (["result", "plans", 0, "deployment", "placement", "tidy"], "moon", "moon"),
        (["query", "pipeline"], "other", "query.pipeline must be chain, got 'other'"),
        (["query", "slo", "accuracy"], 3, "accuracy"),
        (["request", "slo", "accuracy"], 3, r"slo\.accuracy must be <= 1, got 3"),
        (["infrastructure", "tiers"], [], "tier"),
        (["pipeline", "operators", 1, "after"], ["nobody"], "nobody"),
        (["inputs", "order"], [0, 0], r"inputs\.order must be every index once"),
        (["inputs", "order", 0], "0", r"inputs\.order\[0\] must be a whole number"),
        (["inputs", "groups"], [1], r"inputs\.groups must be 30 numbers, or null"),
        (["measurements", 0, "input"], 99, r"measurements\[0\] must be of 2 operators"),
        (["measurements", 0, "operator_s"], [0.1], "must have seconds and bytes"),
        (["measurements", 0, "score"], 1.5, r"must have either a score in \[0, 1\]"),
        (["measurements", 0, "score"], True, r"measurements\[0\]\.score must be a finite number"),
        (["measurements", 0, "configuration"], {"tidy": {"case": "x"}}, "tidy"),
        (["trials", 0, "state"], "odd", "state"),
    ],
)
def test_a_file_that_was_changed_is_refused_with_the_field(
    file: Path, place: list[Any], value: object, told: str
) -> None:
    document = json.loads(file.read_text())
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    file.write_text(json.dumps(document))

    with pytest.raises(InvalidInput, match=told):
        circinus.load(file)


@pytest.mark.parametrize("name", ["planned", "missed"])
def test_a_result_comes_back_from_its_file(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    result: Planned = request.getfixturevalue(name)
    result.save(tmp_path / "plan.json")

    read = circinus.load(str(tmp_path / "plan.json"))

    assert read.front == result.front
    assert read.trials == result.trials
    assert read.bill == result.bill
    assert read.shortfall == result.shortfall
    assert read.infrastructure == result.infrastructure == PRESETS[result.infrastructure.name]
    assert repr(read) == repr(result)
    assert read.whatif(accuracy="+0.05", speed={"cloud": "2x"}) == result.whatif(
        accuracy="+0.05", speed={"cloud": "2x"}
    )
    if result.best is not None:
        assert read.explain() == result.explain()
    read.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "plan.json").read_text()
