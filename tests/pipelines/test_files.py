"""Files that users name: what is no plain file, or claims more than it has, is refused."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import Need, file, missing, package, program
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.files import opened, read_array, read_file
from circinus.pipelines.model.operators import Operator, OperatorSpec


def saved(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", "."):
        with pytest.raises(InvalidInput, match="it must be a file, not a folder, pipe or device"):
            read_file(tmp_path / name, "it")
    for name in ("absent", "a\0b", "n" * 5000):
        with pytest.raises(InvalidInput, match="it must be a readable file"):
            opened(tmp_path / name, "it")


def test_a_file_is_read_up_to_the_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert read_file(tmp_path / "a", "it", 3) == b"abc"
    with pytest.raises(InvalidInput, match="it must have at most 2 bytes"):
        read_file(tmp_path / "a", "it", 2)


def test_a_file_that_tells_no_size_is_read_up_to_the_bound() -> None:
    with pytest.raises(InvalidInput, match="it must have at most 5 bytes"):
        read_file(Path("/proc/self/status"), "it", 5)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 2**40)])
def test_an_array_comes_back(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape if 2**40 not in shape else (0, 9), dtype=np.float32)
    data = saved(array)
    assert np.array_equal(read_array(io.BytesIO(data), len(data)), array)


def test_an_array_that_claims_a_byte_more_than_there_is_is_refused() -> None:
    data = saved(np.zeros(3, dtype=np.uint8))
    with pytest.raises(ValueError, match=f"{len(data) - 1} bytes, whose header claims 3"):
        read_array(io.BytesIO(data[:-1]), len(data) - 1)


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
