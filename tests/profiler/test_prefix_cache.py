from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput
from pipelines.operators import Knob, KnobValue, Operator, OperatorSpec
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from profiler.prefix_cache import Entry, PrefixCache, fingerprints


def entry(output: Payload = "out", seconds: float = 1.0) -> Entry:
    return Entry(output=output, seconds=seconds, output_bytes=5)


def diamond(
    *,
    name: str = "p",
    version: str = "1",
    knobs: tuple[str, ...] = ("u", "v"),
    value: KnobValue = 1,
) -> Pipeline:
    """`a` before `b` and `c`, both before `d`; `b` has the knobs."""

    def operator(name: str, *after: str, knobs: tuple[Knob, ...] = (), v: str = "1") -> Operator:
        spec = OperatorSpec(name=name, after=after, knobs=knobs)
        return Operator(spec=spec, run=lambda inputs, settings: None, version=v)

    of_b = tuple(Knob(name=knob, values=(value, "other")) for knob in knobs)
    operators = (
        operator("a", v=version),
        operator("b", "a", knobs=of_b),
        operator("c", "a"),
        operator("d", "b", "c"),
    )
    return Pipeline(name=name, operators=operators, score=lambda output, expected: 1.0)


def prints(pipeline: Pipeline, number: int = 0) -> dict[str, str]:
    configuration = ConfigurationSpace(pipeline.graph).configuration(number)
    return dict(zip(pipeline.by_name, fingerprints(pipeline, configuration), strict=True))


def changed(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


def test_a_knob_changes_its_operator_and_what_comes_after() -> None:
    assert changed(prints(diamond(), 0), prints(diamond(), 1)) == {"b", "d"}


def test_a_version_changes_its_operator_and_what_comes_after() -> None:
    assert changed(prints(diamond()), prints(diamond(version="2"))) == {"a", "b", "c", "d"}


def test_operators_of_one_name_in_two_pipelines_are_not_the_same() -> None:
    assert changed(prints(diamond()), prints(diamond(name="q"))) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_knob_values_that_only_look_alike_are_told_apart(value: KnobValue) -> None:
    assert changed(prints(diamond(value=1)), prints(diamond(value=value))) == {"b", "d"}


def test_the_order_in_which_knobs_are_declared_does_not_matter() -> None:
    swapped = diamond(knobs=("v", "u"))
    assert not changed(prints(diamond()), prints(swapped))
    # Number 1 changes the last knob: v here, u there. Number 2 the first: u here, v there.
    assert not changed(prints(diamond(), 1), prints(swapped, 2))


def test_operators_alike_in_all_but_name_are_told_apart() -> None:
    assert len(set(prints(diamond()).values())) == 4


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"cache\.limit_bytes must be finite and >= 0, got -1"):
        PrefixCache(-1)


def test_an_entry_is_found_by_operator_and_input_only() -> None:
    cache = PrefixCache()
    cache.put("op", "input", entry())
    assert cache.get("op", "other") is None
    assert cache.get("other", "input") is None
    assert cache.get("op", "input") == entry()


def test_what_is_larger_than_the_limit_is_not_held_and_drives_nothing_out() -> None:
    cache = PrefixCache(2000)
    cache.put("op", "small", entry())
    cache.put("op", "large", entry(np.zeros(1000)))
    assert cache.get("op", "large") is None
    assert cache.get("op", "small") is not None
    assert cache.statistics.refused == 1


def test_a_view_counts_with_all_the_memory_that_it_keeps_alive() -> None:
    cache = PrefixCache(10_000)
    cache.put("op", "view", entry(np.zeros(100_000)[:1]))
    assert cache.statistics.refused == 1


@pytest.mark.parametrize("output", [[0.5] * 1000, {str(i): i for i in range(1000)}, "x" * 8000])
def test_payloads_of_every_kind_count(output: Payload) -> None:
    cache = PrefixCache(8000)
    cache.put("op", "input", entry(output))
    assert cache.statistics.refused == 1


def test_the_least_recently_used_goes_first() -> None:
    # About 1,130 bytes each: two fit into 3,000.
    cache = PrefixCache(3000)
    cache.put("op", "old", entry("x" * 570))
    cache.put("op", "used", entry("x" * 570))
    cache.get("op", "old")
    cache.put("op", "new", entry("x" * 570))
    assert cache.get("op", "used") is None
    assert cache.get("op", "old") is not None
    assert cache.get("op", "new") is not None
    assert cache.statistics.evictions == 1


def test_the_statistics_say_what_happened() -> None:
    cache = PrefixCache()
    cache.get("op", "input")
    cache.put("op", "input", entry(seconds=2.5))
    cache.get("op", "input")
    cache.get("op", "input")
    statistics = cache.statistics
    assert (statistics.hits, statistics.misses, statistics.entries) == (2, 1, 1)
    assert statistics.saved_s == 5.0
    assert statistics.held_bytes > 0


@given(
    limit=st.integers(0, 5000),
    puts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2000)), max_size=30),
)
def test_the_limit_is_kept_and_what_is_held_is_the_latest(
    limit: int, puts: list[tuple[int, int]]
) -> None:
    cache = PrefixCache(limit)
    latest: dict[int, str] = {}
    for key, size in puts:
        latest[key] = chr(97 + size % 26) * size
        cache.put("op", str(key), entry(latest[key]))
        assert cache.statistics.held_bytes <= limit
    for key, output in latest.items():
        held = cache.get("op", str(key))
        assert held is None or held.output == output
    if not latest:
        assert dataclasses.astuple(cache.statistics) == (0, 0, 0, 0, 0, 0, 0.0)


def test_replacing_an_entry_gives_its_memory_back() -> None:
    cache = PrefixCache()
    cache.put("op", "input", entry("x" * 1000))
    before = cache.statistics.held_bytes
    cache.put("op", "input", entry("y" * 1000))
    assert cache.statistics.held_bytes == before
    assert cache.statistics.entries == 1
