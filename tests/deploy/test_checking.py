"""What a pipeline's check does, its process tells or is ended."""

import re

import pytest

from circinus.deploy.profiling.checking import checked, tried
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example
from tests.deploy import checked_pipelines

EXAMPLES = [Example(input=number, expected=None) for number in (2, 1, 0, 4)]


def _checked(name: str, timeout_s: float = 20.0) -> tuple[str, ...]:
    pipeline = getattr(checked_pipelines, name)
    return checked(_reference(name), pipeline, EXAMPLES, timeout_s=timeout_s).remarks


def _reference(name: str) -> str:
    return f"tests.deploy.checked_pipelines:{name}"


def test_a_refusal_comes_through_with_its_fields() -> None:
    with pytest.raises(InvalidInput, match=r"^operator inverse must be right, got 2\.$"):
        _checked("refused")


def test_a_check_that_hangs_is_ended_and_told() -> None:
    assert _checked("hanging", timeout_s=0.5) == ("not checked: it took longer than 0.5 s",)


@pytest.mark.parametrize(("name", "code"), [("exiting", 7), ("raising", 1)])
def test_a_check_that_takes_its_process_down_is_told(name: str, code: int) -> None:
    assert _checked(name) == (f"not checked: its process ended with exit code {code}",)


def test_a_pipeline_that_a_fresh_process_cannot_load_is_told_not_refused() -> None:
    (told,) = checked("no.such:module", checked_pipelines.refused, EXAMPLES).remarks
    assert told.startswith(
        "not checked: a fresh process cannot load it (pipeline must be importable"
    )


def test_cancelling_ends_a_check() -> None:
    reference = _reference("hanging")
    found = checked(reference, checked_pipelines.hanging, EXAMPLES, cancelled=lambda: True)
    assert found.remarks == ("not checked: cancelled",)


def test_the_first_three_inputs_are_checked_whatever_the_check_prints() -> None:
    assert _checked("told") == ("saw 3 inputs",)


@pytest.mark.parametrize("reference", ["", _reference("told")])
def test_operators_that_were_seen_to_draw_come_through(reference: str) -> None:
    assert checked(reference, checked_pipelines.told, EXAMPLES).draws == ("inverse",)


def test_a_pipeline_without_a_check_costs_no_process() -> None:
    assert checked("no.such:module", checked_pipelines.plain, EXAMPLES) == ((), ())


def test_an_example_that_fails_is_refused_with_the_operator() -> None:
    rule = "the first example must run through the pipeline (operator inverse failed: ZeroDiv"
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        tried(_reference("plain"), checked_pipelines.plain, EXAMPLES[2:])


def test_an_example_that_takes_its_process_down_is_refused() -> None:
    rule = "the first example must run through the pipeline (its process ended with exit code 7)"
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        tried(_reference("exiting"), checked_pipelines.exiting, EXAMPLES)


def test_an_example_that_runs_leaves_the_remarks() -> None:
    assert tried(_reference("plain"), checked_pipelines.plain, EXAMPLES) == ()
    assert tried(_reference("told"), checked_pipelines.told, EXAMPLES) == ("saw 3 inputs",)


def test_a_pipeline_that_has_to_be_prepared_first_is_checked_but_not_run() -> None:
    found = tried(_reference("prepared"), checked_pipelines.prepared, EXAMPLES[2:])
    assert found == ("no example was run: the pipeline has to be prepared first", "saw 2 inputs")


def test_an_example_is_run_though_only_all_together_have_a_score() -> None:
    assert tried(_reference("over_set"), checked_pipelines.over_set, EXAMPLES) == ()
