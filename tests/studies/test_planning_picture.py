from dataclasses import replace
from xml.etree import ElementTree

import pytest

from circinus.studies.planning.report import pictures
from circinus.studies.planning.study import PlanningRow
from tests.studies.planning_rows import ROW


def _row(strategy: str, seconds: float, *, slo: str = "easy", history: int = 0) -> PlanningRow:
    return replace(
        ROW,
        trace="t",
        method=strategy,
        slo=slo,
        history=history,
        profiling_seconds=seconds,
        first_answer_true=seconds < 2,
        response_seconds=seconds,
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
