from dataclasses import replace

import pytest
from matplotlib.patches import Rectangle

from circinus.studies.planning.report import pictures
from circinus.studies.planning.study import PlanningRow
from circinus.studies.report.charts import svg
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
    (axes,) = drawn["planning-t-easy.svg"].axes
    widths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert widths == pytest.approx([2.0, 4.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a<b", "c"]
    assert "2.000 s, 50% true, 2 runs" in [text.get_text() for text in axes.texts]


def test_runs_with_history_have_a_bar_of_their_own() -> None:
    drawn = pictures([_row("a", 1.0), _row("a", 0.5, history=10)])["planning-t-easy.svg"]
    assert ">a, 10 earlier<" in svg(drawn)
