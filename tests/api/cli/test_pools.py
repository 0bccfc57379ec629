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
    """Give exit code and output."""
    told = ["--latency", latency, "--model", "toy", "--qos-ms", "1200", "--requests", "300"]
    done = invoke("pool", "choose", *told, *words)
    return done.exit_code, done.stdout + done.stderr


TWO = ("--types", "g4dn.xlarge,r5n.large")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (TWO, "budget must be given or a rate, and not both"),
        ((*TWO, "--budget", "1", "--rate", "2"), "budget must be given or a rate"),
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
    document = json.loads(told)
    choice = document["choice"]
    assert choice["types"] == ["g4dn.xlarge", "r5n.large", "own.box"]
    assert choice["chosen"]["pool"][2] > 0
    assert choice["chosen"]["pool"] in [offer["pool"] for offer in choice["front"]]
    assert document["priced"][2]["date"] == "2026-01-01"


def test_no_pool_that_will_do_ends_in_3(latency: str) -> None:
    code, told = choose(latency, "--types", "r5n.large", "--budget", "1")
    assert code == 3
    assert "no pool: no pool has 99 % in time" in told
