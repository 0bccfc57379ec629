import csv
from pathlib import Path
from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.simulation.draws import SimulatedRates
from circinus.studies.dispatch.bounds import BoundStudy, picture, results, summary
from circinus.studies.report.charts import svg
from tests.api.cli.commands import invoke
from tests.studies.test_dispatch import lines, table

PRICES = (1.0, 0.2)  # of `base` and `slow`, which is four times as slow


def study(**changed: Any) -> BoundStudy:  # noqa: ANN401 - values of any field
    values: dict[str, Any] = {
        "table": table(),
        "qos_s": 0.15,
        "prices": PRICES,
        "budget_usd_per_hour": 2.5,
        "top": 3,
        "policies": ("kairos", "fcfs"),
        "seeds": 1,
        "requests": 1000,
    }
    return BoundStudy(**(values | changed))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget_usd_per_hour": 0.5}, "budget must pay an instance of base, which costs 1 USD/h"),
        ({"budget_usd_per_hour": float("inf")}, "budget must be finite"),
        ({"prices": (0.0, 0.2)}, "price of base must be finite and > 0"),
        ({"prices": (1.0, -0.2)}, "price of slow must be finite and >= 0"),
        ({"policies": ("best",)}, "policies must be among"),
        ({"policies": ("kairos", "kairos")}, "policies must not repeat"),
        ({"top": 0}, "top must be >= 1"),
        ({"requests": 10}, "requests must be >= 1000"),
        ({"qos_s": 0.0}, "qos_s must be"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        study(**wrong)


def test_pools_are_those_of_the_budget_by_their_bounds_behind_the_base_type_alone() -> None:
    rows = [row for row in results(study(top=50)) if row.policy == "kairos"]
    pools = [tuple(map(int, row.pool.split())) for row in rows]
    assert pools[0] == (2, 0)
    assert all(a * PRICES[0] + b * PRICES[1] <= 2.5 + 1e-9 for a, b in pools)
    count = sum(a + 0.2 * b <= 2.5 + 1e-9 for a in range(3) for b in range(13)) - 1
    assert len(set(pools[1:])) == len(pools[1:]) == count  # every one but the empty pool
    bounds = [row.bound_rps for row in rows[1:]]
    assert bounds == sorted(bounds, reverse=True)
    assert sum(row.chosen for row in rows[1:]) == 1


def test_rates_are_those_that_a_simulation_allows_and_the_base_is_scaled_to_the_budget() -> None:
    small = study()
    draws = small.draws(0, small.requests)
    for row in results(small):
        rates = SimulatedRates(policy=dispatch_policy(row.policy), draws=draws)
        assert row.rate_rps == rates.rate(tuple(map(int, row.pool.split())))
        if row.rank == 0:
            base = row.rate_rps * 2.5 / 2.0
        assert row.over_base == pytest.approx(row.rate_rps / base)


def test_the_command_writes_rows_and_a_picture(tmp_path: Path) -> None:
    latency, prices, out = tmp_path / "latency.csv", tmp_path / "prices.csv", tmp_path / "out"
    latency.write_text("\n".join(lines()))
    prices.write_text("instance,usd_per_hour\nbase,1.0\nslow,0.2\n")
    options = ["--model", "toy", "--qos-ms", "150", "--top", "2", "--seeds", "1"]
    options += ["--requests", "1000", "--latency", str(latency), "--prices", str(prices)]
    result = invoke("study", "bounds", *options, "--policies", "kairos", "--out", str(out))
    assert result.exit_code == 0, result.stderr
    with (out / "bounds.csv").open(newline="", encoding="utf-8") as file:
        assert [row["rank"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    assert "<svg" in (out / "bounds.svg").read_text(encoding="utf-8")


def test_a_service_of_another_name_is_refused(tmp_path: Path) -> None:
    result = invoke(
        *("study", "bounds", "--model", "rm2", "--qos-ms", "350", "--out", str(tmp_path)),
        *("--service", "fast"),
    )
    assert result.exit_code == 2
    assert "service must be among mean, sampled, got 'fast'" in result.stderr


def test_a_summary_has_a_cell_for_each_policy_and_pool() -> None:
    rows = list(results(study(seeds=2)))
    cells = summary(rows)
    assert len(cells) == 2 * 4
    assert cells[0].rate_rps == pytest.approx((rows[0].rate_rps + rows[8].rate_rps) / 2)
    assert "<svg" in svg(picture(rows))
