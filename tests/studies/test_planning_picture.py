from xml.etree import ElementTree

import pytest

from studies.planning import Row
from studies.planning_picture import pictures


def _row(strategy: str, seconds: float, *, slo: str = "easy", history: int = 0) -> Row:
    return Row(
        trace="t",
        method=strategy,
        slo=slo,
        seed=0,
        accuracy_slo=0.5,
        latency_slo_s=0.1,
        history=history,
        profiling_seconds=seconds,
        found=True,
        first_answer_true=seconds < 2,
        steps=1,
        oracle_seconds=0.5,
        cost_ratio_5s=None,
        cost_ratio_20s=None,
        cost_ratio_60s=None,
        proposal_seconds_p50=0.0,
        proposal_seconds_p95=0.0,
        workers=1,
        response_seconds=seconds,
        shown=1,
        met=1,
        met_wrongly=0,
        accuracy_covered=1,
        latency_covered=1,
        latency_sure=1,
        latency_sure_covered=1,
    )


def test_no_rows_give_no_picture() -> None:
    assert pictures([]) == {}


def test_there_is_a_picture_per_level_with_a_bar_per_strategy_as_long_as_its_mean() -> None:
    rows = [_row("a<b", 1.0), _row("a<b", 3.0), _row("c", 4.0), _row("c", 1.0, slo="hard")]
    drawn = pictures(rows)
    assert set(drawn) == {"planning-t-easy.svg", "planning-t-hard.svg"}
    root = ElementTree.fromstring(drawn["planning-t-easy.svg"])
    bars = [e for e in root.iter() if e.tag.endswith("rect")][1:]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[0] / widths[1] == pytest.approx(2.0 / 4.0, rel=0.01)
    told = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert "a<b" in told
    assert "2.000 s, 50% true, 2 runs" in told


def test_runs_with_history_have_a_bar_of_their_own() -> None:
    drawn = pictures([_row("a", 1.0), _row("a", 0.5, history=10)])["planning-t-easy.svg"]
    assert ">a, 10 earlier<" in drawn
