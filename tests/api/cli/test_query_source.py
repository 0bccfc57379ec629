"""A chain by name on the command line, with no file: what is set, what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from circinus.api.cli.query_source import read_source
from circinus.api.query_file import completed
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.endpoints import CallPrice, Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.registry import load_pipeline
from tests.api.cli.commands import adder_query, invoke

LOCAL = """
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough

up = RunnableLambda(lambda text: text.upper())
down = RunnableLambda(lambda text: text.lower())
case = RunnablePassthrough().configurable_alternatives(
    ConfigurableField(id="case"), default_key="same", up=up, down=down
)
chain = case | RunnableLambda(lambda text: text + "!", name="shout")
examples = [(text, text.upper() + "!") for text in ("ab", "Cd", "eF", "gh")]


def metric(output, expected):
    return float(output == expected)
"""
CALLING = """
from langchain_openai import ChatOpenAI
from circinus import report_usage

chain = ChatOpenAI(model="{model}", api_key="none", base_url={address!r}, temperature=0)
examples = [("a", "b")]
metric = lambda output, expected: 1.0
"""
SLO = ("--set", "slo.accuracy=0.9", "--set", "slo.latency_s=5")


@pytest.fixture(autouse=True)
def modules(folder: Path) -> Iterator[None]:
    (folder / "local_chain.py").write_text(LOCAL)
    yield
    for name in ("local_chain", "calling_chain"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["slo.accuracy"], "--set must be NAME=VALUE, as slo.accuracy=0.8, got 'slo.accuracy'"),
        (["slo..accuracy=1"], "--set must be NAME=VALUE"),
        (["pipeline.name=1"], "--set pipeline.name must be a field of a mapping"),
        (["slo.accuracy=[1"], "--set slo.accuracy must be YAML"),
        (["slo.acuracy=1"], "slo.acuracy"),
        (["slo.accuracy=high"], "slo.accuracy"),
    ],
)
def test_what_cannot_be_set_is_refused(given: list[str], message: str) -> None:
    sets = [part for text in given for part in ("--set", text)]
    result = invoke("plan", "local_chain:chain", *sets)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_and_a_module_that_is_not_there_are_refused() -> None:
    for what, message in (("no.yaml", "file no.yaml"), ("no_such:chain", "No module named")):
        result = invoke("validate", what, *SLO)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())


def test_a_chain_is_planned_with_no_file_and_all_its_examples() -> None:
    result = invoke(
        *("plan", "local_chain:chain", *SLO, "--infrastructure", "one-tier"),
        *("--executor", "pool", "--json", "--cold"),
    )

    assert result.exit_code == 0, result.output
    plans = json.loads(result.stdout)["plans"]
    assert plans
    assert all({"case": "up"} in plan["configuration"].values() for plan in plans)


def test_what_is_set_goes_before_the_file_and_the_rest_of_it_stays(folder: Path) -> None:
    adder_query(folder)
    document = read_source("adder.yaml", ["slo.accuracy=0.25", "limits.profiling_s=1e1"]).document

    assert document["slo"] == {**read_source("adder.yaml", None).document["slo"], "accuracy": 0.25}
    assert document["limits"]["profiling_s"] == 10.0


def test_data_that_are_told_are_not_added_to() -> None:
    def data(*sets: str) -> object:
        return read_source("local_chain:chain", sets).document["data"]

    assert data() == {"examples": 4}
    assert data("data.seed=3") == {"seed": 3, "examples": 4}
    assert data("data.examples=2") == {"examples": 2}
    assert data("data.jsonl=own.jsonl") == {"jsonl": "own.jsonl"}


def _calling(folder: Path, model: str, address: str | None) -> None:
    text = CALLING.format(model=model, address=address)
    (folder / "calling_chain.py").write_text(text)


def test_an_endpoint_whose_price_nobody_lists_is_asked_for(folder: Path) -> None:
    _calling(folder, "mine", "http://127.0.0.1:9/v1")
    result = invoke("plan", "calling_chain:chain", *SLO, "--infrastructure", "one-tier")

    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "infrastructure.endpoints must have what the pipeline calls" in told
    assert "{name: mine, price: {input_usd_per_million: ?, output_usd_per_million: ?}" in told


def test_a_provider_s_own_model_is_priced_as_of_today(folder: Path) -> None:
    _calling(folder, "gpt-4o-mini", None)
    sys.path.insert(0, str(folder))
    pipeline = load_pipeline("calling_chain:chain", allow_import=True)
    day_s = 1_768_478_400.0  # 2026-01-15, noon

    tiers, notes = completed(PRESETS["one-tier"], pipeline, ManualClock(seconds=day_s))

    assert [each.name for each in tiers.endpoints] == ["gpt-4o-mini"]
    assert "on 2026-01-15)" in notes[0]


def test_prices_that_look_like_slips_are_told() -> None:
    tiers = Infrastructure(
        name="lab",
        tiers=(
            Tier(name="own", dedicated=True),
            Tier(name="paid", machines=2, price_usd_per_hour=1.0),
            Tier(name="free", machines=2),
            Tier(name="api", endpoints=(endpoint("a", 1.5e-7), endpoint("b", 0.15))),
        ),
        links=tuple(
            Link(between=both, bandwidth_bytes_per_s=1e9, delay_s=0.0)
            for both in (("own", "paid"), ("paid", "free"), ("paid", "api"))
        ),
    )
    operator = Operator(spec=OperatorSpec(name="same"), run=lambda inputs, knobs: inputs)
    pipeline = Pipeline(name="same", operators=(operator,), score=lambda output, expected: 1.0)

    _, notes = completed(tiers, pipeline)
    assert notes == (
        "tier free: price_usd_per_hour is 0 or left out (default 0), so plans there cost nothing",
        "endpoint a: input_usd_per_million is 1.5e-07 a million, below any listed price: it must "
        "be per million tokens, not per token",
    )


def endpoint(name: str, usd: float) -> Endpoint:
    return Endpoint(name=name, price=CallPrice(input_usd_per_million=usd))


def test_the_library_plans_a_chain_by_name_with_the_same_parts(folder: Path) -> None:
    _calling(folder, "mine", "http://127.0.0.1:9/v1")
    import circinus

    with pytest.raises(InvalidInput, match="name: mine"):
        circinus.plan(
            "calling_chain:chain", 1, accuracy=0.5, latency_s=1.0, infrastructure="one-tier"
        )
    planned = circinus.plan(
        "local_chain:chain",
        4,
        accuracy=0.9,
        latency_s=5.0,
        infrastructure="one-tier",
        executor="in-process",
        cold=True,
        progress=False,
    )
    assert planned.best is not None
