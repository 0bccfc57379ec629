"""What is said of the rate at which machines become cheaper than calls, as in docs/calls.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.query_file import query_of, read_infrastructure
from circinus.api.schemas.query import to_query
from circinus.api.use_cases.changes import break_even_view, rates_of
from circinus.pipelines.errors import InvalidInput
from circinus.planner.answers.break_even import break_even
from tests.api.malformed import query
from tests.planner.price_tables import PriceTable

ROOT = Path(__file__).parents[2]
QUERY = to_query(query_of(query()))
# as in docs/calls.md: $2.88 an hour for 1 request a second, $0.001 a request, a tenth more or less
TABLE = PriceTable(
    machine_usd_per_hour=2.88, per_machine_per_s=1.0, usd_per_request=0.001, spread=1.1
)
LAB = read_infrastructure(str(ROOT / "examples" / "infrastructure" / "calls.yaml"))


def words(low: float, high: float, table: PriceTable = TABLE) -> str:
    return break_even_view(break_even(table.plans, low, high), QUERY, LAB).words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be LOW:HIGH, such as 0.1:50, got ''"),
        ("1", "must be LOW:HIGH"),
        ("-1:2", "must be LOW:HIGH"),
        ("2:1", "must be LOW:HIGH with LOW < HIGH, got '2:1'"),
        ("1:1e9", "must be from 1e-06 to 1000000, got 1000000000.0"),
    ],
)
def test_rates_that_are_no_range_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"rate {told}"):
        rates_of(QUERY, text)
    batch = replace(QUERY, request_rate_per_s=None, slo=replace(QUERY.slo, throughput_per_s=1.0))
    with pytest.raises(InvalidInput, match=r"rate must be left out with slo\.throughput_per_s"):
        rates_of(batch, "1:2")


def test_the_page_s_sentence_is_what_is_said() -> None:
    assert f"    {words(0.1, 50)}\n" in (ROOT / "docs" / "calls.md").read_text()


def test_each_outcome_has_its_words() -> None:
    assert words(0.1, 0.5) == "from 0.1 to 0.5 requests/s plans that call endpoints are cheapest"
    assert words(0.9, 0.95) == ("at 0.9 requests/s machines are cheaper than calls already")
    assert words(0.1, 1.1).endswith("; at 1.1 calls are cheaper again, as machines come whole")
    unsure = replace(TABLE, spread=1.3)  # 0.8 x 1.3 is more than one machine answers
    assert "(0.6154 to beyond 0.99)" in words(0.1, 0.99, unsure)
    none = replace(TABLE, machines=0, most_per_s=0.01)
    assert words(0.1, 2, none) == "from 0.1 to 2 requests/s no measured plan does"
    assert words(0.1, 2, replace(TABLE, machines=0)) == (
        "from 0.1 to 2 requests/s only plans that call endpoints would do"
    )
