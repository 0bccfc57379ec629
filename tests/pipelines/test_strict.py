"""JSON as it is read from elsewhere: few values, each of them meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.strict import MOST_VALUES, read_json

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
