from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import InvalidInput
from pipelines.trace import load_trace, save_trace
from studies.synthetic_traces import SHAPES, synthetic


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(InvalidInput, match="synthetic pipeline must be among fan, answers"):
        synthetic("none", np.random.default_rng(0))


def test_a_trace_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    # Loading checks that an operator depends on its own knobs and its ancestors' only.
    trace = synthetic("fan", np.random.default_rng(0))
    save_trace(trace, tmp_path / "fan")
    assert np.array_equal(load_trace(tmp_path / "fan").latency_s, trace.latency_s)


@pytest.mark.parametrize("name", SHAPES)
def test_scores_are_fractions_and_seconds_positive(name: str) -> None:
    trace = synthetic(name, np.random.default_rng(1))
    assert trace.score.min() >= 0
    assert trace.score.max() <= 1
    assert trace.latency_s.min() > 0
    assert bool(np.isin(trace.score, (0, 1)).all()) == (name == "fan")


def test_equal_generators_give_equal_traces_and_others_do_not() -> None:
    first, again, other = (synthetic("fan", np.random.default_rng(s)) for s in (0, 0, 1))
    assert np.array_equal(first.score, again.score)
    assert not np.array_equal(first.score, other.score)
