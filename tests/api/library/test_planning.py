"""`circinus.plan`: planning from a program, also what no fresh process could import."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, TypedDict

import numpy as np
import pytest
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda
from langgraph.graph import END, START, StateGraph

import circinus
from circinus import (
    Dataset,
    Example,
    InvalidInput,
    Knob,
    Operator,
    OperatorSpec,
    Pipeline,
    Planned,
)
from circinus.api.store.history import open_history
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload
from tests.api.library.conftest import PAIRS, Chain, cased, exact
from tests.e2e.service_process import ROOT

DATA = Dataset(name="own", examples=[Example(input=i, expected=i + 1) for i in range(12)])
EASY: dict[str, Any] = {"accuracy": 0.5, "latency_s": 1.0, "infrastructure": "one-tier"}


def _plus(by: int) -> Pipeline:
    spec = OperatorSpec(name="plus", knobs=(Knob(name="by", values=(0, by)),))
    run = Operator(spec=spec, run=lambda number, knobs: int(str(number)) + int(knobs["by"]))
    return Pipeline(name="plus", operators=(run,), score=exact)


# --- What is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"accuracy": 1.5}, r"slo\.accuracy must be <= 1, got 1\.5"),
        ({"accuracy": "high"}, r"slo\.accuracy must be a finite number, got 'high'"),
        ({"latency_s": None}, r"slo\.latency_s must be given without throughput_per_s"),
        ({"latency_statistic": "p42"}, r"slo\.latency_statistic must be one of"),
        ({"holds_for": "ever"}, r"slo\.holds_for must be one of"),
        ({"on_failure": "ignore"}, r"data\.on_failure must be one of"),
        ({"profiling_s": 0}, r"limits\.profiling_s must be"),
        ({"response_s": float("nan")}, r"limits\.response_s must be"),
        ({"configurations": 0}, r"limits\.configurations must be >= 1"),
        ({"seed": -1}, r"seed must be >= 0"),
        ({"method": "magic"}, r"planning\.method must be among"),
        ({"method": {"strategie": "cmbo"}}, r"planning\.strategie must be one of the known"),
        ({"restrictions": {"knobs": {"plus": {"to": {"only": [1]}}}}}, "to"),
        ({"device": {"speed": 1.0}}, r"device\.speed must be one of the known fields"),
        ({"executor": "magic"}, "executor must be in-process, pool"),
        ({"workers": 0}, "must be >= 1"),
        ({"infrastructure": "moon"}, "infrastructure must be a file or one of"),
        ({"score": exact}, "score must be left out: the pipeline says it"),
        ({"choices": {"a": [1]}}, "choices must be left out"),
        ({"name": "other"}, "name must be left out"),
    ],
)
def test_an_argument_that_breaks_a_rule_is_refused_with_field_and_rule(
    change: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        circinus.plan(_plus(1), DATA, **{**EASY, **change})


def test_all_broken_rules_of_a_query_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        circinus.plan(_plus(1), DATA, accuracy=2, latency_s=-1, seed=-1)

    fields = [violation.field for violation in refused.value.violations]
    assert fields == ["slo.accuracy", "slo.latency_s", "seed"]


@pytest.mark.parametrize("given", [object(), 3, None, Path("x")])
def test_what_is_neither_pipeline_nor_chain_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="chain must be a Runnable, a function or a dict"):
        circinus.plan(given, DATA, **EASY, score=exact)


@pytest.mark.parametrize("score", [None, 0.5])
def test_a_chain_needs_a_score(score: Callable[[object, object], float] | None) -> None:
    with pytest.raises(InvalidInput, match=r"score must be a function \(output, expected\)"):
        circinus.plan(cased(), PAIRS, **EASY, score=score)


def test_choices_of_a_field_that_no_step_has_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"choices must be .* case, or what .* got 'size'"):
        circinus.plan(cased(), PAIRS, **EASY, score=exact, choices={"size": [1, 2]})


def test_an_unknown_pipeline_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pipeline must be registered"):
        circinus.plan("nowhere", DATA, **EASY)


def test_a_chain_whose_step_cannot_be_sent_is_refused_by_name() -> None:
    gather: Runnable[Any, Any] = RunnableLambda(lambda x: [x, object()], name="gather")
    chain = gather | RunnableLambda(max, name="largest")

    with pytest.raises(InvalidInput, match="output of operator gather must be made of"):
        circinus.plan(chain, DATA, **EASY, score=exact)


def test_a_check_whose_process_ends_is_told() -> None:
    def leave(number: int) -> int:
        os._exit(3)

    result = circinus.plan(RunnableLambda(leave, name="leave"), DATA, **EASY, score=exact)

    assert result.remarks[0] == "not checked: its process ended with exit code 3"
    assert result.outcome == "failed"
    assert "died" in result.failures[0].cause
    assert result.best is None
    assert "leave failed on" in repr(result)


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (lambda output, expected: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda output, expected: 1.5, r"must give a score in [0, 1], got 1.5"),
        (lambda output: 1.0, "TypeError"),
    ],
)
def test_a_score_that_fails_is_told_as_what_failed(
    score: Callable[[object, object], float], told: str
) -> None:
    result = circinus.plan(lambda number: number, DATA, **EASY, score=score)

    assert result.outcome == "failed"
    assert result.failures[0].operator == "score"
    assert told in result.failures[0].cause


def test_no_plan_is_an_answer_and_says_what_binds(missed: Planned) -> None:
    assert missed.best is missed.fastest is missed.most_accurate is None
    assert missed.front == ()
    assert missed.outcome == "infeasible"
    assert missed.shortfall is not None
    assert missed.shortfall.binding == ["latency"]
    assert missed.shortfall.sentence in " ".join(repr(missed).split())


# --- What is planned -------------------------------------------------------------------


def test_a_chain_made_here_is_planned_in_a_process_of_its_own() -> None:
    def add(number: int) -> int:
        if os.getpid() == here:
            raise RuntimeError("in the process that plans")
        return number + 1

    here = os.getpid()

    result = circinus.plan(RunnableLambda(add, name="add"), DATA, **EASY, score=exact)

    assert result.outcome == "feasible"
    assert result.best is not None
    assert result.best.accuracy.value == 1.0


def test_the_best_plan_tells_what_runs_where_and_what_it_gives(planned: Planned) -> None:
    best = planned.best

    assert best is not None
    assert best is planned.cheapest
    assert best.configuration == {"case": {"case": "upper"}}
    assert list(best.placement) == ["tidy", "case"]
    assert best.accuracy.value == 1.0
    assert best.latency_s.value is not None
    assert 0 < best.latency_s.value <= 0.5
    assert [plan.cost_usd_per_hour for plan in planned.front] == sorted(
        plan.cost_usd_per_hour for plan in planned.front
    )
    assert not planned.interrupted


def test_each_measured_configuration_is_told_once_with_its_newest_figures(
    planned: Planned,
) -> None:
    told = [trial.configuration["case"]["case"] for trial in planned.trials]

    assert sorted(map(str, told)) == ["same", "title", "upper"]
    states = {t.configuration["case"]["case"]: t.state.value for t in planned.trials}
    assert states.pop("upper") == "feasible"
    assert set(states.values()) <= {"inaccurate", "undecided"}  # it is on no front either way


def test_a_graph_of_langgraph_is_planned_and_comes_back() -> None:
    class State(TypedDict):
        text: str

    graph = StateGraph(State)
    graph.add_node("loud", lambda state: {"text": state["text"].upper()})
    graph.add_edge(START, "loud")
    graph.add_edge("loud", END)
    data = [({"text": f"a{n}"}, {"text": f"A{n}"}) for n in range(8)]

    result = circinus.plan(graph.compile(), data, **EASY, score=exact)

    assert result.best is not None
    assert result.best.accuracy.value == 1.0
    assert result.as_runnable().invoke({"text": "b"}) == {"text": "B"}


def test_choices_turn_an_open_field_into_a_knob() -> None:
    prompt = PromptTemplate.from_template("{text}").configurable_fields(
        template=ConfigurableField(id="template")
    )
    chain: Chain = RunnableLambda(lambda text: {"text": text}) | prompt | (lambda p: p.to_string())
    data = [(f"word {n}", f"<word {n}>") for n in range(12)]

    result = circinus.plan(
        chain, data, **EASY, score=exact, choices={"template": ["{text}", "<{text}>"]}
    )

    assert result.best is not None
    assert next(iter(result.best.configuration.values())) == {"template": "<{text}>"}
    assert result.as_runnable().invoke("x") == "<x>"


def test_a_score_may_give_truth_values_and_see_what_the_chain_gives() -> None:
    chain: Chain = RunnableLambda(lambda number: (number, str(number)), name="both")

    result = circinus.plan(
        chain, [(n, n) for n in range(8)], **EASY, score=lambda output, n: output == (n, str(n))
    )

    assert result.best is not None
    assert result.best.accuracy.value == 1.0


def test_numbers_of_numpy_are_taken_as_numbers() -> None:
    numbers: dict[str, Any] = {"accuracy": np.float32(0.5), "latency_s": np.float64(1.0)}

    result = circinus.plan(_plus(1), DATA, **numbers)

    assert result.best is not None


def test_a_registered_name_and_a_number_of_examples_are_enough() -> None:
    result = circinus.plan("digits", 20, accuracy=0.1, latency_s=10.0, profiling_s=2.0)

    assert result.best is not None
    assert result.best.pipeline == "digits"


def test_an_infrastructure_is_a_preset_a_file_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntiers: [{name: here, machines: 1, price_usd_per_hour: 1}]\n")

    for given in (path, str(path), PRESETS["one-tier"], "one-tier"):
        result = circinus.plan(_plus(1), DATA, **{**EASY, "infrastructure": given})
        name = "mine" if "mine" in str(given) else "one-tier"
        assert result.infrastructure.name == name


def test_the_query_is_planned_as_the_command_line_plans_its_file(tmp_path: Path) -> None:
    where = "tests.e2e.troublesome:healthy"
    query = {"pipeline": where, "data": {"examples": 12}, "cold": True}
    file = tmp_path / "query.yaml"
    file.write_text(json.dumps({**query, "slo": {"accuracy": 0.5, "latency_s": 1.0}}))
    told = subprocess.run(
        [sys.executable, "-m", "circinus.api.cli", "plan", str(file), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    result = circinus.plan(where, 12, accuracy=0.5, latency_s=1.0, cold=True)

    document = json.loads(told.stdout)
    assert result.outcome == document["outcome"]
    # The best is the same; how many more of the front are measured depends on what runs took.
    best = document["plans"][0]
    assert result.best is not None
    assert result.best.configuration == best["configuration"]


def test_later_plans_start_from_what_earlier_ones_measured(own_memory: Path) -> None:
    def plan(by: int) -> Planned:
        return circinus.plan(lambda number: number + by, DATA, **EASY, score=exact, name="more")

    plan(1)
    plan(1)
    plan(2)  # another function: another pipeline

    kept = open_history(f"sqlite:///{own_memory}/memory.sqlite3").summaries()
    assert sorted(one.queries for one in kept if one.pipeline == "more") == [1, 1]


def test_a_bar_is_shown_where_stderr_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    circinus.plan(_plus(1), DATA, **EASY, progress=False)
    assert screen.getvalue() == ""
    circinus.plan(_plus(1), DATA, **EASY)
    assert "plus" in screen.getvalue()
    assert "━" in screen.getvalue()
    assert "finished, " in screen.getvalue()


def test_what_is_piped_gets_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    circinus.plan(_plus(1), DATA, **EASY)

    assert capfd.readouterr() == ("", "")


def test_the_first_lines_of_the_page_do_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    source = page.partition("```python\n")[2].partition("```")[0]

    exec(source, {"__name__": "__main__"})

    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("1.0 {")
    assert told[1] == "YOU"


# --- async -----------------------------------------------------------------------------


def test_the_event_loop_goes_on_while_a_plan_is_made() -> None:
    async def both() -> tuple[Planned, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        result = await circinus.plan_async(_plus(1), DATA, **EASY)
        ticking.cancel()
        return result, ticks

    result, ticks = asyncio.run(both())

    assert result.best is not None
    assert ticks > 5


def test_a_refusal_is_raised_where_it_is_awaited() -> None:
    with pytest.raises(InvalidInput, match=r"slo\.accuracy must be <= 1"):
        asyncio.run(circinus.plan_async(_plus(1), DATA, **{**EASY, "accuracy": 2}))


def test_both_ways_take_the_same_arguments() -> None:
    assert inspect.signature(circinus.plan_async) == inspect.signature(circinus.plan)


def _slow(seen: Path) -> Pipeline:
    def run(number: Payload, knobs: Settings) -> Payload:
        with seen.open("a") as file:
            file.write(f"{number!r} {knobs['by']}\n")
        Event().wait(0.03)
        return int(str(number)) + int(knobs["by"])

    spec = OperatorSpec(name="plus", knobs=(Knob(name="by", values=(0, 1, 2, 3, 4, 5)),))
    return Pipeline(name="slow", operators=(Operator(spec=spec, run=run),), score=exact)


HARD: dict[str, Any] = {
    **EASY,
    "accuracy": 1.0,
    "method": {"strategy": "exhaustive", "stopping": "betting"},
}


def test_a_cancelled_task_ends_and_its_measurements_are_gone_on_from(
    tmp_path: Path, own_memory: Path
) -> None:
    async def cancelled() -> None:
        planning = asyncio.create_task(circinus.plan_async(_slow(tmp_path / "seen"), DATA, **HARD))
        while not list(own_memory.glob("interrupted/*.jsonl")):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        planning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await planning

    asyncio.run(cancelled())
    (journal,) = own_memory.glob("interrupted/*.jsonl")
    kept = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert kept
    before = len((tmp_path / "seen").read_text().splitlines())

    result = circinus.plan(_slow(tmp_path / "seen"), DATA, **HARD)

    told = f"went on from {len(kept)} measurements of a call that was interrupted"
    assert told in result.remarks
    again = (tmp_path / "seen").read_text().splitlines()[before:]
    warm_ups = 6  # one of each setting, in the new worker
    assert len(again) <= len(result.trials) * len(DATA) - len(kept) + warm_ups
    assert result.best is not None
    assert not list(own_memory.glob("interrupted/*.jsonl"))


# --- Interrupts ------------------------------------------------------------------------

INTERRUPTED = """
import sys, time, circinus
from circinus import Knob, Operator, OperatorSpec, Pipeline

def run(number, knobs):
    with open(sys.argv[1], "a") as file:
        file.write(f"{knobs['by']} {number}\\n")
    time.sleep(0.03)
    return number + knobs["by"]

spec = OperatorSpec(name="plus", knobs=(Knob(name="by", values=(0, 1, 2, 3, 4, 5)),))
slow = Pipeline(
    name="slow",
    operators=(Operator(spec=spec, run=run),),
    score=lambda output, expected: float(output == expected),
)
method = {"strategy": "exhaustive", "stopping": "betting"}
print("begin", flush=True)
result = circinus.plan(
    slow, [(n, n + 1) for n in range(20)], accuracy=1.0, latency_s=1.0, method=method,
    infrastructure="one-tier",
)
print(result.interrupted, result.outcome, len(result.trials), result.best is not None)
print(result.bill.paid.runs)
print("; ".join(result.remarks))
"""


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured_and_the_same_call_pays_for_none_of_it_again(
    tmp_path: Path,
) -> None:
    script, seen = tmp_path / "script.py", tmp_path / "seen"
    script.write_text(INTERRUPTED)
    memory = {
        "CIRCINUS_INTERRUPTED": str(tmp_path / "interrupted"),
        "CIRCINUS_DATABASE_URL": f"sqlite:///{tmp_path}/memory.sqlite3",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **memory}
    command = [sys.executable, str(script), str(seen)]
    first = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    while not seen.exists() or len(seen.read_text().splitlines()) < 30:
        assert first.poll() is None
        Event().wait(0.02)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    told, _ = first.communicate(timeout=30)
    assert first.returncode == 0
    assert told.splitlines()[1].startswith("True ")
    assert "interrupted" not in told.splitlines()[-1]
    (journal,) = (tmp_path / "interrupted").glob("*.jsonl")
    assert journal.stat().st_mode & 0o777 == 0o600
    kept = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert len(kept) > 10
    before = len(seen.read_text().splitlines())

    second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert second.returncode == 0, second.stderr
    told = second.stdout
    assert "False feasible" in told
    assert f"went on from {len(kept)} measurements" in told
    pairs = {(each["configuration"]["plus"]["by"], each["input"]) for each in kept}
    after = [tuple(map(int, line.split())) for line in seen.read_text().splitlines()[before:]]
    again = [pair for pair in after if pair in pairs]
    assert len(again) <= 1  # the run that warms the new worker up for the setting it is at
    assert not list((tmp_path / "interrupted").glob("*.jsonl"))


@pytest.mark.slow
def test_a_script_that_does_not_ask_whether_it_is_main_plans_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
from circinus import plan

print("planning")
where = "tests.e2e.troublesome:healthy"
print(plan(where, 10, accuracy=0.5, latency_s=1.0, infrastructure="one-tier").outcome)
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split() == ["planning", "feasible"], done.stderr


# --- Metrics over the set ---------------------------------------------------------------


def _flagging() -> Pipeline:
    spec = OperatorSpec(name="flag", knobs=(Knob(name="cut", values=(0.5, 2.0, 99.0)),))
    run = Operator(spec=spec, run=lambda x, knobs: int(float(str(x)) > float(knobs["cut"])))
    return Pipeline(name="rare", operators=(run,), score=exact)


RARE = [(float(x), int(x >= 2)) for x in np.linspace(0, 2.2, 100).round(2)]
"""One in ten is positive, from 2.0 on: cut 2.0 misses what lies on it, 0.5 flags three in four."""


def test_f1_over_the_set_is_what_is_planned_for() -> None:
    result = circinus.plan(_flagging(), RARE, **EASY | {"accuracy": 0.6}, score=F1)
    # Everything is negative for cut 99, which is right for nine in ten.
    assert result.best is not None
    assert result.best.configuration == {"flag": {"cut": 2.0}}
    flagged = [x > 2.0 for x, _ in RARE]
    both = sum(f and y for f, (_, y) in zip(flagged, RARE, strict=True))
    f1 = 2 * both / (sum(flagged) + sum(y for _, y in RARE))
    assert result.best.accuracy.value == pytest.approx(f1)
    assert result.best.accuracy.low == result.best.accuracy.high  # all inputs are met
    assert result.best.future is not None
    ahead = result.best.future.accuracy
    assert ahead.low is not None
    assert ahead.high is not None
    assert ahead.low < 0.9 < ahead.high  # ten positive inputs
    assert result.whatif(accuracy=0.7).after[0].accuracy.value == pytest.approx(f1)


def test_a_set_metric_outside_its_range_is_refused_before_anything_runs() -> None:
    def percent(outputs: list[int], expected: list[int]) -> float:
        return 100.0 * float(np.mean(np.equal(outputs, expected)))

    score = circinus.SetMetric(function=percent)
    with pytest.raises(InvalidInput, match="divide it by 100 if it goes from 0 to 100"):
        circinus.plan(_flagging(), RARE, **EASY, score=score)


def test_a_set_metric_that_fails_ends_planning_with_its_cause() -> None:
    def broken(outputs: list[int], expected: list[int]) -> float:
        raise KeyError("label")

    result = circinus.plan(_flagging(), RARE, **EASY, score=circinus.SetMetric(function=broken))
    assert result.outcome == "failed"
    assert "KeyError: 'label'" in result.failures[0].cause
    assert result.best is None


def test_a_chain_is_planned_for_f1_over_the_set() -> None:
    result = circinus.plan(
        cased(), PAIRS, **EASY, score={"function": "sklearn.metrics.f1_score", "arguments": MICRO}
    )
    assert result.best is not None
    assert result.best.accuracy.value == 1.0


F1 = "sklearn.metrics.f1_score"
MICRO = {"average": "micro"}
