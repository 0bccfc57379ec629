import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import Slot
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.payload import (
    Payload,
    content_hash,
    decode,
    encode,
    encoded_together,
    payload_bytes,
    plain_json,
)

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | hnp.arrays(
        hnp.integer_dtypes() | hnp.floating_dtypes() | hnp.boolean_dtypes(),
        hnp.array_shapes(min_dims=0, min_side=0),
    )
)
PAYLOADS = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab$", max_size=8), inner),
    max_leaves=8,
)


def _same(a: Payload, b: Payload) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        equal = np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        return equal and a.dtype == b.dtype and a.shape == b.shape
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(
    "bad",
    [object(), {1: "a"}, (1, 2), {"a": {2}}, np.array([object()]), np.array(["2020"], "M8[Y]")],
    ids=["object", "number as key", "tuple", "set", "array of objects", "array of dates"],
)
def test_a_value_of_another_type_is_no_payload(bad: Payload) -> None:
    with pytest.raises(InvalidInput, match="payload must"):
        encode(bad)


class Tensor:
    """Looks like one of PyTorch's, which is not imported to be asked."""


@pytest.mark.parametrize(
    ("bad", "remedy"),
    [
        (Tensor(), "numpy"),
        ({2, 1}, "sorted"),
        (datetime(2024, 1, 1), "isoformat"),
        ((1, 2), "list"),
        (Path("a"), "str"),
        (Slot("a", None), "list"),  # type: ignore[arg-type]  # a named tuple
        (OperatorSpec(name="a"), "asdict"),
        ({1: "a"}, "str"),
    ],
)
def test_a_message_says_what_makes_a_payload_of_a_value(bad: Payload, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=rf"payload must .*{remedy}"):
        encode(bad)


def test_nesting_without_end_is_refused() -> None:
    deep: list[Payload] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InvalidInput, match="must nest at most 64 deep"):
        encode(deep)


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\xffnull",
        encode(b"abc")[:-1],
        encode(b"abc") + b"!",
        b"\x00\x00\x00\x0e" + b'{"$bytes": -1}',
        b'\x00\x00\x00\x1c{"$array":["|O",[1]]}       ' + b"12345678",
        b'\x00\x00\x00\x17{"$array":["<f8",[-1]]}' + b"12345678",
        b'\x00\x00\x00\x10{"$array":"<f8"}',
    ],
)
def test_bytes_that_are_no_payload_are_refused(torn: bytes) -> None:
    with pytest.raises(InvalidInput, match="payload must"):
        decode(torn)


@given(PAYLOADS | st.sampled_from([[float("inf")], float("nan"), {"a": -float("inf")}, "$a"]))
def test_text_that_is_passed_on_unread_is_json_of_the_payload(payload: Payload) -> None:
    text = plain_json(encode(payload))
    if text is not None:
        read = json.loads(text, parse_constant=pytest.fail, object_hook=_unmarked)
        assert _same(read, payload)


@given(st.dictionaries(st.text("ab$", max_size=3), PAYLOADS, max_size=3))
def test_payloads_are_encoded_together_as_the_dict_of_them_is(parts: dict[str, Payload]) -> None:
    together = encoded_together({name: encode(part) for name, part in parts.items()})
    assert _same(decode(together), decode(encode(parts)))


@pytest.mark.parametrize("payload", [b"a", {"a": np.zeros(2)}, {"$a": 1}, float("nan")])
def test_what_json_has_no_form_of_is_not_passed_on_unread(payload: Payload) -> None:
    assert plain_json(encode(payload)) is None


def _unmarked(read: dict[str, Payload]) -> dict[str, Payload]:
    assert not any(key.startswith("$") for key in read)
    return read


@given(payload=PAYLOADS)
def test_a_payload_survives_the_wire(payload: Payload) -> None:
    assert _same(decode(encode(payload)), payload)


@given(payload=PAYLOADS)
def test_equal_content_has_an_equal_hash_and_size(payload: Payload) -> None:
    copy = decode(encode(payload))

    assert content_hash(copy) == content_hash(payload)
    assert payload_bytes(copy) == payload_bytes(payload)


def test_unlike_content_has_unlike_hashes() -> None:
    alike: list[Payload] = [1, 1.0, "1", True, b"1", [1], {"1": 1}, np.ones(1), np.ones(1, "f4")]

    assert len({content_hash(payload) for payload in alike}) == len(alike)


def test_a_column_order_array_arrives_as_it_was() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3))

    assert _same(decode(encode(array)), array)


def test_the_size_of_an_array_is_that_of_its_numbers() -> None:
    assert payload_bytes(np.zeros((10, 10), "u1")) == 100
    assert payload_bytes(b"12345") == 5
    assert payload_bytes("four") == 6  # with its quotes


def test_a_decoded_array_can_be_written() -> None:
    array = decode(encode(np.zeros(3)))

    assert isinstance(array, np.ndarray)
    array[0] = 1
