"""Payloads in JSON bodies come back as they were, and nothing malformed comes in."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.http.payload_json import payload_from_json, payload_to_json
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload, content_hash

BAD: list[tuple[object, str]] = [
    ({"$bytes": 3}, "must be base64"),
    ({"$bytes": "a"}, "must be base64"),
    ({"$bytes": "", "more": 1}, "must have one of"),
    ({"$code": "x"}, "must have one of"),
    ({"$array": [1]}, "must have exactly dtype, shape and base64"),
    ({"$array": {"dtype": "O", "shape": [], "base64": ""}}, "must name a dtype"),
    ({"$array": {"dtype": "i4,i4", "shape": [], "base64": ""}}, "must name a dtype"),
    ({"$array": {"dtype": "<i4", "shape": [-1], "base64": ""}}, "must be at most 32 whole"),
    ({"$array": {"dtype": "<i4", "shape": [True], "base64": ""}}, "must be at most 32 whole"),
    ({"$array": {"dtype": "<i4", "shape": [2], "base64": "AAAA"}}, "must hold the 8 bytes"),
    (
        {"$array": {"dtype": "|u1", "shape": [2**40, 2**40, 0], "base64": ""}},
        r"of which those > 0 make at most 1099511627776, got \[1099511627776,",
    ),
    ({"$dict": [["$a", [{}, {"$bytes": 3}]]]}, r"input.\$dict.\$a\[1\].\$bytes must be base64"),
    ({"a" * 99: [{"$bytes": 3}]}, r"^input.a{40}\[0\].\$bytes must be base64, got 3"),
    ({"$array": {"dtype": "i4," * 99, "shape": [], "base64": ""}}, "must name a dtype"),
    ({"$dict": [["a"]]}, r"must be a list of \[text, value\]"),
    ({"$dict": 3}, r"must be a list of \[text, value\]"),
]


@pytest.mark.parametrize(("tree", "rule"), BAD)
def test_a_malformed_mark_is_refused(tree: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        payload_from_json(tree)


def test_what_nests_too_deep_is_refused() -> None:
    tree: object = 1
    for _ in range(65):
        tree = [tree]
    with pytest.raises(InvalidInput, match="must nest at most 64 deep"):
        payload_from_json(tree)


def test_a_float_that_json_has_not_is_refused_outside_arrays() -> None:
    with pytest.raises(InvalidInput, match="must be finite"):
        payload_to_json([float("nan")])
    kept = payload_from_json(payload_to_json(np.array([np.nan])))
    assert isinstance(kept, np.ndarray)
    assert np.isnan(kept).all()


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
    st.lists(st.integers(-100, 100), max_size=4).map(lambda v: np.array(v, dtype=np.int16)),
)
payloads = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "$bytes", "$x", ""]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(payloads)
def test_a_payload_comes_back_as_it_was(payload: Payload) -> None:
    text = json.dumps(payload_to_json(payload), allow_nan=False)
    assert content_hash(payload_from_json(json.loads(text))) == content_hash(payload)
