"""How often what is shown of plans is so, counted over searches and traces."""

from dataclasses import replace
from math import isnan

import pytest

from circinus.studies.planning.report import Coverage, coverage
from tests.studies.planning_rows import ROW


def _of(lines: list[Coverage], trace: str) -> Coverage:
    (line,) = (one for one in lines if one.trace == trace)
    return line


def test_searches_that_showed_nothing_say_nothing() -> None:
    nothing = replace(
        ROW,
        shown=0,
        met=0,
        met_wrongly=0,
        accuracy_covered=0,
        latency_covered=0,
        latency_sure=0,
        latency_sure_covered=0,
    )
    assert coverage([nothing]) == []
    assert _of(coverage([ROW, nothing]), "a").searches == 1


def test_where_nothing_was_met_or_sure_no_part_of_it_is_told() -> None:
    cautious = replace(ROW, met=0, met_wrongly=0, latency_sure=0, latency_sure_covered=0)
    line = _of(coverage([cautious]), "a")
    assert line.met == line.sure == 0.0
    assert isnan(line.met_wrongly)
    assert isnan(line.latency_sure)


def test_plans_of_a_trace_count_alike_whichever_search_showed_them() -> None:
    line = _of(coverage([ROW, replace(ROW, shown=30, accuracy_covered=30)]), "a")
    assert line.plans == 40
    assert line.accuracy == pytest.approx(39 / 40)
    assert line.met_wrongly == pytest.approx(2 / 8)


def test_traces_count_alike_however_many_plans_they_have() -> None:
    many = replace(ROW, trace="b", shown=1_000, accuracy_covered=1_000)
    whole = _of(coverage([ROW, many]), "all")
    assert whole.accuracy == pytest.approx((0.9 + 1.0) / 2)
    # Two figures, 0.9 and 1.0: Student's t with one degree of freedom, cut off at 1.
    assert whole.accuracy_interval == "0.315 to 1.000"
    assert _of(coverage([ROW, many]), "b").accuracy_interval == ""


def test_methods_are_told_apart() -> None:
    lines = coverage([ROW, replace(ROW, method="published", accuracy_covered=5)])
    assert [(line.method, line.trace, line.accuracy) for line in lines] == [
        ("default", "a", 0.9),
        ("default", "all", 0.9),
        ("published", "a", 0.5),
        ("published", "all", 0.5),
    ]
