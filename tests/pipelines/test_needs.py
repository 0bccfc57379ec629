from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import Need, file, missing, package, program
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Operator, OperatorSpec


def needing(*needs: Need) -> Pipeline:
    return Pipeline(
        name="p",
        operators=(Operator(spec=OperatorSpec(name="op"), run=lambda inputs, knobs: inputs),),
        score=lambda output, expected: 1.0,
        needs=needs,
    )


def test_a_pipeline_that_lacks_something_is_refused_with_what_and_how_to_get_it() -> None:
    lacking = needing(package("no_module", extra="x"), program("no-program", debian="y"))
    with pytest.raises(InvalidInput) as caught:
        lacking.require_available()
    assert str(caught.value) == (
        "pipeline must be available here (missing: no_module (pip install 'circinus[x]'), "
        "no-program (apt-get install y)), got 'p'."
    )


def test_a_file_is_missing_unless_it_is_in_one_of_its_places(tmp_path: Path) -> None:
    need = file("words", [tmp_path / "a", tmp_path / "b"], debian="wordlist")
    assert missing([need]) == (need,)
    (tmp_path / "b").touch()
    assert missing([need]) == ()


def test_what_is_there_is_not_missing() -> None:
    here = needing(package("json", extra="x"), program("sh", debian="dash"))
    assert here.available() == ()
    here.require_available()
