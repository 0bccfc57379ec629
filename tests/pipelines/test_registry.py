import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.registry import listed, load_pipeline, registered

TINY = Pipeline(
    name="tiny",
    operators=(Operator(spec=OperatorSpec(name="op"), run=lambda inputs, knobs: inputs),),
    score=lambda output, expected: 1.0,
)
NOT_A_PIPELINE = 3


def make_tiny() -> Pipeline:
    return TINY


def raising() -> Pipeline:
    raise KeyError("weights")


def leaving() -> Pipeline:
    raise SystemExit(3)


@pytest.mark.parametrize("reference", ["nothing", "digit", ""])
def test_a_name_that_is_not_registered_is_refused(reference: str) -> None:
    with pytest.raises(InvalidInput, match=r"pipeline must be registered \(.*digits.*\)"):
        load_pipeline(reference)


def test_an_import_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(InvalidInput, match=r"must be a registered pipeline .*, got 'os:system'"):
        load_pipeline("os:system")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests.pipelines.test_registry:raising", r"must be importable \(KeyError: 'weights'\)"),
        ("tests.pipelines.test_registry:leaving", r"must be importable \(SystemExit: 3\)"),
        ("no.such.module:x", "must be importable"),
        ("tests.pipelines.test_registry:NOWHERE", "must be importable"),
        (":x", "must be importable"),
        ("tests.pipelines.test_registry:NOT_A_PIPELINE", "must name a Pipeline"),
    ],
)
def test_a_reference_that_gives_no_pipeline_is_refused(reference: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_pipeline(reference, allow_import=True)


@pytest.mark.parametrize("attribute", ["TINY", "make_tiny"])
def test_a_reference_names_a_pipeline_or_what_makes_one(attribute: str) -> None:
    found = load_pipeline(f"tests.pipelines.test_registry:{attribute}", allow_import=True)

    assert found.name == "tiny"


def test_the_default_pipeline_is_registered_and_brings_data() -> None:
    assert "digits" in registered()
    pipeline = load_pipeline("digits")

    assert pipeline.examples is not None
    assert isinstance(pipeline.examples(2, 0), Dataset)


def test_a_pipeline_that_cannot_be_loaded_is_listed_with_the_reason_beside_the_others() -> None:
    def load(name: str) -> Pipeline:
        reference = f"tests.pipelines.test_registry:{name}"
        return load_pipeline(reference, allow_import=True)

    broken, whole = listed(["raising", "TINY"], load)

    assert broken.pipeline is None
    assert "KeyError: 'weights'" in broken.missing[0].name
    assert (whole.name, whole.pipeline, whole.missing) == ("TINY", TINY, ())
