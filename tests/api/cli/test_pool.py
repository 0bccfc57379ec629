"""`circinus pool choose`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from circinus.api.instance_catalogue import known_prices
from circinus.pipelines.errors import InvalidInput
from tests.api.cli.commands import invoke

PRICES = """\
date: 2026-03-01
source: our provider
types:
  - {name: base, price_usd_per_hour: 1, accelerator: one of ours}
  - {name: slow, price_usd_per_hour: 0.3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        f"toy,{name},{batch},{factor * (10 + 0.05 * batch)},0"
        for name, factor in (("base", 1), ("slow", 4))
        for batch in range(10, 1001, 10)
    ]
    lines = "\n".join(["model,instance,batch,mean_ms,std_ms", *rows])
    (tmp_path / "latency.csv").write_text(lines)
    (tmp_path / "prices.yaml").write_text(PRICES)
    return tmp_path


def choose(folder: Path, *told: str, prices: str = "prices.yaml") -> Result:
    fixed = ("--latency", f"{folder / 'latency.csv'}", "--model", "toy", "--qos-ms", "150")
    few = ("--requests", "500", "--draws", "2", "--catalogue", f"{folder / prices}")
    return invoke("pool", "choose", *fixed, *few, *told)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((), "rate must be given, or budget, and not both"),
        (("--rate", "5", "--budget", "5"), "rate must be given, or budget, and not both"),
        (("--rate", "0"), "rate must be finite and > 0"),
        (("--budget", "0.2"), "must pay an instance, of which the cheapest costs 0.3 USD/h"),
        (("--rate", "5", "--types", "base,quick"), "types must be"),
        (("--rate", "5", "--dispatch", "luck"), "luck"),
        (("--rate", "5", "--most", "2000"), "must give at most 1000000 pools"),
    ],
)
def test_what_cannot_be_asked_is_told_and_ends_in_2(
    folder: Path, told: tuple[str, ...], words: str
) -> None:
    result = choose(folder, *told)
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.split())


def test_types_without_a_price_are_told_with_those_that_have_one(folder: Path) -> None:
    (folder / "none.yaml").write_text(PRICES.replace("slow", "other"))
    result = choose(folder, "--rate", "5", prices="none.yaml")
    assert result.exit_code == 2
    assert "type must be in the catalogue" in result.stderr


def test_a_rate_that_no_pool_serves_is_an_answer_that_ends_in_3(folder: Path) -> None:
    result = choose(folder, "--rate", "5000", "--json")
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert told["chosen"] is None
    assert "serve at most" in told["why"]


def test_the_answer_has_pool_price_with_its_date_rate_front_and_reason(folder: Path) -> None:
    result = choose(folder, "--budget", "1.9", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["chosen"]["counts"] == {"base": 1, "slow": 3}
    assert told["chosen"]["usd_per_hour"] == pytest.approx(1.9)
    assert told["prices"]["base"] == {
        "usd_per_hour": 1.0,
        "date": "2026-03-01",
        "source": "our provider",
    }
    assert told["front"][-1]["rate_rps"] > told["front"][0]["rate_rps"] > 0
    shown = choose(folder, "--budget", "1.9").stdout
    assert "1 base + 3 slow for $1.9000/h" in shown
    assert "Prices: our provider, 2026-03-01." in shown


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        (("date: 2026-03-01", "date: 2026-13-01"), "date", "must be YYYY-MM-DD"),
        (("price_usd_per_hour: 0.3", "price_usd_per_hour: -1"), "price_usd_per_hour", ">= 0"),
        (("name: slow", "name: base"), "types", "must not repeat"),
        (("name: slow, ", ""), "name", "must be given"),
        (("source: our provider\n", ""), "source", "must be given"),
    ],
)
def test_what_is_wrong_in_a_catalogue_is_told_by_field_and_rule(
    tmp_path: Path, change: tuple[str, str], field: str, rule: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(PRICES.replace(*change))
    with pytest.raises(InvalidInput) as told:
        known_prices([file])
    assert any(field in fault.field and rule in fault.rule for fault in told.value.faults)


def test_a_users_prices_go_before_ours_which_all_have_a_date(folder: Path) -> None:
    ours = known_prices()
    assert all(each.date and each.source for each in ours.values())
    (folder / "cheaper.yaml").write_text(PRICES.replace("slow", "g4dn.xlarge"))
    assert known_prices([folder / "cheaper.yaml"])["g4dn.xlarge"].usd_per_hour == 0.3
    assert ours["g4dn.xlarge"].usd_per_hour != 0.3
