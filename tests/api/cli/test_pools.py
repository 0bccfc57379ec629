"""`circinus pool choose`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.cli.commands import invoke


@pytest.fixture
def latency(tmp_path: Path) -> str:
    """Two types of the built-in catalogue, one of our own."""
    lines = ["model,instance,batch,mean_ms,std_ms"]
    lines += [
        f"toy,{name},{batch},{factor * batch},0"
        for name, factor in (("g4dn.xlarge", 1), ("r5n.large", 2), ("own.box", 2))
        for batch in (100, 400, 1000)
    ]
    path = tmp_path / "latency.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def choose(latency: str, *words: str) -> tuple[int, str]:
    """Return exit code and output."""
    told = ["--latency", latency, "--model", "toy", "--qos-ms", "1200", "--requests", "300"]
    done = invoke("pool", "choose", *told, *words)
    return done.exit_code, done.stdout + done.stderr


TWO = ("--types", "g4dn.xlarge,r5n.large")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (TWO, "budget must be given, or a rate, or both"),
        ((*TWO, "--budget", "1", "--query", "q-1"), "--latency must be given, or --query"),
        (("--budget", "1"), "prices must have every type to choose among"),
        (("--budget", "1", "--types", "p9.large"), "types must be among g4dn.xlarge"),
        ((*TWO, "--budget", "1", "--method", "guess"), "method must be among simulated"),
        ((*TWO, "--budget", "1", "--mix", "odd"), "mix must be kairos"),
        ((*TWO, "--budget", "0.1"), "budget must pay an instance"),
        ((*TWO, "--budget", "1", "--prices", "nowhere.yaml"), "--prices must be a readable file"),
    ],
)
def test_what_makes_no_sense_ends_in_2(latency: str, words: tuple[str, ...], message: str) -> None:
    code, told = choose(latency, *words)
    assert (code, message in " ".join(told.split())) == (2, True), told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--latency must be given, or --query"),
        (("--query", "q-1", "--model", "toy"), "--model must be left out with --query"),
        (("--query", "q-1", "--mix", "ribbon"), "--mix must be left out with --query"),
        (("--query", "q-1", "--sampled"), "--sampled must be left out with --query"),
        (("--latency", "x.csv", "--qos-ms", "5"), "--model must be given with --latency"),
        (("--latency", "x.csv", "--model", "toy"), "--qos-ms must be given with --latency"),
    ],
)
def test_a_choice_is_by_a_file_or_for_a_query(words: tuple[str, ...], message: str) -> None:
    done = invoke("pool", "choose", *words)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


def test_with_a_rate_a_budget_is_the_most_that_it_may_cost(latency: str) -> None:
    code, told = choose(latency, *TWO, "--rate", "4", "--budget", "9")
    dear, said = choose(latency, *TWO, "--rate", "40", "--budget", "1")
    assert (code, dear) == (0, 0)
    assert "the cheapest of" in told
    assert "USD/h; of" in " ".join(said.split())


def test_a_pool_is_told_with_its_price_date_rate_and_reason(latency: str) -> None:
    code, told = choose(latency, *TWO, "--budget", "1.5")
    text = " ".join(told.split())
    assert code == 0, told
    assert "USD/h (aws, on-demand list price, Linux, us-east-1, of 2025-01-01)" in text
    for part in ("pool: ", "rate: ", "why: of ", "how sure: ", "Price and rate"):
        assert part in text


def test_a_cheapest_pool_comes_as_json_with_prices_of_ones_own(
    latency: str, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    entry = "{name: own.box, price_usd_per_hour: 0.01}"
    own.write_text(f"{{date: 2026-01-01, provider: us, source: paid, types: [{entry}]}}")
    code, told = choose(latency, "--rate", "4", "--prices", str(own), "--json")
    assert code == 0, told
    choice = json.loads(told)
    assert choice["types"] == ["g4dn.xlarge", "r5n.large", "own.box"]
    assert choice["chosen"]["pool"][2] > 0
    assert choice["chosen"]["pool"] in [offer["pool"] for offer in choice["front"]]
    assert choice["prices"][2]["date"] == "2026-01-01"


def test_no_pool_that_will_do_ends_in_3(latency: str) -> None:
    code, told = choose(latency, "--types", "r5n.large", "--budget", "1")
    assert code == 3
    assert "no pool: no pool has 99 % in time" in told
