from __future__ import annotations

import numpy as np
import pytest

from pipelines.payload import Payload
from profiler.read_only import freeze, handed_out


def test_writing_into_a_frozen_array_fails_however_deep_it_lies() -> None:
    array = np.zeros(3)
    freeze({"a": [1, {"b": array}]})
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_writing_into_an_array_handed_out_fails_and_the_owner_still_may() -> None:
    array = np.zeros(3)
    view = handed_out([array])
    assert isinstance(view, list)
    given = view[0]
    assert isinstance(given, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        given[0] = 1
    array[0] = 1
    assert np.shares_memory(given, array)


def test_lists_and_dicts_are_handed_out_as_copies_at_every_depth() -> None:
    kept: dict[str, Payload] = {"a": [1, {"b": 2}]}
    given = handed_out(kept)
    assert given == kept
    assert isinstance(given, dict)
    inner = given["a"]
    assert isinstance(inner, list)
    inner.append(3)
    innermost = inner[1]
    assert isinstance(innermost, dict)
    innermost["b"] = 4
    assert kept == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize("payload", [None, True, 1, 1.5, "text", b"bytes"])
def test_what_cannot_be_changed_is_handed_out_itself(payload: Payload) -> None:
    freeze(payload)
    assert handed_out(payload) is payload
