from __future__ import annotations

import json
from datetime import datetime
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.strict import MOST_VALUES, read_json
from circinus.pipelines.model.graph import PipelineGraph, Slot
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from circinus.pipelines.model.payload import (
    Payload,
    content_hash,
    decode,
    encode,
    encoded_together,
    payload_bytes,
    plain_json,
)
from tests.pipelines.strategies import graphs


def _graph(**after: tuple[str, ...]) -> PipelineGraph:
    operators = tuple(OperatorSpec(name=name, after=parents) for name, parents in after.items())
    return PipelineGraph(name="g", operators=operators)


def test_a_cycle_is_refused_and_named() -> None:
    with pytest.raises(InvalidInput, match=r"must not form a cycle, got \['a', 'b'\]"):
        _graph(s=(), a=("s", "b"), b=("a",))


def test_an_operator_after_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidInput, match="must not form a cycle"):
        _graph(a=("a",))


def test_an_unknown_parent_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"operator b.after must be among a, b, got 'x'"):
        _graph(a=(), b=("x",))


def test_a_repeated_operator_is_refused() -> None:
    operators = (OperatorSpec(name="a"), OperatorSpec(name="a"))
    with pytest.raises(InvalidInput, match="must not repeat, got 'a'"):
        PipelineGraph(name="g", operators=operators)


def test_no_operator_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have at least one operator"):
        PipelineGraph(name="g", operators=())


@pytest.mark.parametrize("bad", ["", "1a", "a b", "a/b", "a" * 64, "ä"])
def test_a_name_that_is_no_name_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match=r"operator.name must start with a letter"):
        OperatorSpec(name=bad)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ((), "at least one value"),
        ((1, 1.0), "must not repeat"),
        ((1, True), "must not repeat"),
        ((float("nan"),), "text, numbers or truth values"),
    ],
)
def test_knob_values_that_are_no_choices_are_refused(values: tuple[float, ...], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        Knob(name="k", values=values)


def test_numbers_are_ordered_and_words_are_not_unless_told() -> None:
    assert Knob(name="k", values=(1, 2)).ordered is True
    assert Knob(name="k", values=("a", "b")).ordered is False
    assert Knob(name="k", values=("low", "high"), ordered=True).ordered is True
    assert Knob(name="k", values=(True, False)).ordered is False


@pytest.mark.parametrize("curve", [{}, {2: 1.0}, {1: 0.5}, {1: 1.0, 2: 0.5}])
def test_a_batch_curve_that_falls_or_does_not_start_at_one_is_refused(
    curve: dict[int, float],
) -> None:
    with pytest.raises(InvalidInput, match="batch_latency must map"):
        OperatorSpec(name="a", scaling=Scaling.BATCHED, batch_latency=curve)


def test_operators_come_out_in_topological_order_and_otherwise_as_given() -> None:
    graph = _graph(d=("b", "c"), c=("a",), b=("a",), a=())

    assert [op.name for op in graph.operators] == ["a", "c", "b", "d"]
    assert graph.sinks == ("d",)
    assert graph.parents == ((), (0,), (0,), (2, 1))
    assert graph.lineages == ((0,), (0, 1), (0, 2), (0, 1, 2, 3))


def test_width_counts_what_can_run_at_once() -> None:
    graph = _graph(a=(), b=("a",), c=("a",), d=("b", "c"))

    assert graph.width([0, 1, 2, 3]) == 2
    assert graph.width([0, 1, 3]) == 1
    assert graph.width([]) == 0


@given(graph=graphs(most=6))
def test_width_equals_the_largest_antichain_by_brute_force(graph: PipelineGraph) -> None:
    positions = range(len(graph.operators))

    def independent(group: tuple[int, ...]) -> bool:
        return all(
            a not in graph.lineages[b] and b not in graph.lineages[a]
            for a, b in combinations(group, 2)
        )

    groups = (g for size in range(7) for g in combinations(positions, size))
    assert graph.width(list(positions)) == max(len(g) for g in groups if independent(g))


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


FEW = "must have at most 10 values"
TREES = st.recursive(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a,[{"\\', max_size=4), inner),
    max_leaves=12,
)


def values(tree: object) -> int:
    """Count as the rule says it: each list and mapping, too, and empty ones twice."""
    if isinstance(tree, dict | list):
        inner = list(tree.values()) if isinstance(tree, dict) else tree
        return 1 + (sum(map(values, inner)) if inner else 1)
    return 1


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[" + "1," * 9 + "1]", FEW),  # ten and their list
        ("[[],[],[],[],[]]", FEW),
        ("[" * 11, FEW),
        ('["' + '","' * 10 + '"]', FEW),
        ('["",' * 99, FEW),
        ("\ufeff{}", "must be UTF-8 without a byte order mark at its begin"),
        ('{"a":1,"b":2,"a":3}', "must name every field once, got 'a'"),
        ('"\\ud800"', "must have text that UTF-8 can hold"),
        ('{"\\uDFFF": 1}', "must have text that UTF-8 can hold"),
        ("[1e999]", "must have finite numbers, got '1e999'"),
        ("NaN", "must have finite numbers"),
        ("9" * 5000, "must have numbers of fewer digits"),
        ("{", "must be JSON"),
        ("", "must be JSON"),
    ],
)
def test_what_is_not_meant_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=f"^it {rule}"):
        read_json(text.encode(), "it", 10)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4,5,6,7,8,9]",
        "[[],[],[],[]]",
        '[",,,,,,,,,,,,,,,,[[[[[[{{{{{{{"]',
        '{"\\",,,,,,,,,,\\\\": "\\\\\\",,,,,,,,,,,"}',
        '"\\ud83d\\ude00"',
    ],
)
def test_what_is_text_does_not_count(text: str) -> None:
    assert read_json(text.encode(), "it", 10) == json.loads(text)


@given(TREES)
def test_it_counts_as_it_says(tree: object) -> None:
    text, count = json.dumps(tree).encode(), values(tree)
    assert read_json(text, "it", count) == tree
    if count > 1:
        with pytest.raises(InvalidInput, match=f"at most {count - 1} values"):
            read_json(text, "it", count - 1)


def test_the_deepest_that_is_read() -> None:
    assert read_json(b"[" * 99 + b"1" + b"]" * 99, "it")
    with pytest.raises(InvalidInput, match="must nest at most 100 deep"):
        read_json(b"[" * 100 + b"1" + b"]" * 100, "it")


def test_a_text_at_the_bound_is_read() -> None:
    most = "[" + "1," * (MOST_VALUES - 2) + "1]"
    assert len(json.loads(most)) == MOST_VALUES - 1
    assert read_json(most.encode(), "it")
    with pytest.raises(
        InvalidInput, match=f"at most {MOST_VALUES} values.*, got {MOST_VALUES + 1}"
    ):
        read_json(most.replace("[1", "[1,1").encode(), "it")
