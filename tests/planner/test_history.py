import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import ConfigurationRecord, QueryRecord

_CONFIGURATION = Configuration((("a", "k", 1),))


def _record(**more: object) -> ConfigurationRecord:
    values: dict[str, object] = {
        "configuration": _CONFIGURATION,
        "inputs": 2,
        "accuracy": 0.5,
        "deviation": 0.1,
        "operator_s": (0.1,),
        "operator_deviation_s": (0.01,),
        "output_bytes": (8.0,),
        "input_bytes": 4.0,
    }
    return ConfigurationRecord(**(values | more))  # type: ignore[arg-type]  # what the test varies


def _query(name: str, fingerprint: str = "p1") -> QueryRecord:
    slo = Slo(accuracy=0.5, latency_s=1.0)
    return QueryRecord(query=name, fingerprint=fingerprint, slo=slo, configurations=(_record(),))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("inputs", 0, "record.inputs must be >= 1, got 0"),
        ("accuracy", 1.1, r"record.accuracy must be in \[0, 1\], got 1.1"),
        ("accuracy", float("nan"), r"record.accuracy must be in \[0, 1\], got nan"),
        ("deviation", -0.1, "record.deviation must be finite and >= 0, got -0.1"),
        ("input_bytes", -1.0, "record.input_bytes must be finite and >= 0, got -1"),
        ("operator_s", (float("nan"),), "record.operator_s must be finite and >= 0, got nan"),
        ("operator_s", (), "record.operator_s must have 0 figures, one per operator, got 0"),
        ("output_bytes", (1.0, 2.0), "record.output_bytes must have 1 figures"),
        ("operator_deviation_s", (), "record.operator_deviation_s must have 1 figures"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        _record(**{field: value})


def test_a_record_without_name_or_fingerprint_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"record\.query must not be empty"):
        _query("")
    with pytest.raises(InvalidInput, match=r"record\.fingerprint must not be empty"):
        _query("q", fingerprint="")


def test_a_record_holds_means_and_deviations() -> None:
    work = Work(
        operator_s=np.array([[1.0, 3.0], [2.0, 2.0]]),
        output_bytes=np.array([[10.0, 30.0], [5.0, 5.0]]),
        input_bytes=np.array([100.0, 200.0]),
    )
    record = ConfigurationRecord.of(_CONFIGURATION, np.array([0.0, 1.0]), work)
    assert record.inputs == 2
    assert record.accuracy == 0.5
    assert record.deviation == pytest.approx(0.5**0.5)
    assert record.operator_s == (2.0, 2.0)
    assert list(record.operator_deviation_s) == [pytest.approx(2**0.5), 0.0]
    assert record.output_bytes == (20.0, 5.0)
    assert record.input_bytes == 150.0
    assert record.mean_work.operator_s.tolist() == [[2.0], [2.0]]


def test_one_input_has_no_deviation() -> None:
    one = Work(
        operator_s=np.array([[1.0]]), output_bytes=np.array([[1.0]]), input_bytes=np.array([1.0])
    )
    record = ConfigurationRecord.of(_CONFIGURATION, np.array([1.0]), one)
    assert record.deviation == 0.0
    assert record.operator_deviation_s == (0.0,)
