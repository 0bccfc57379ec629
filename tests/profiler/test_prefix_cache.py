from __future__ import annotations

import dataclasses
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Knob, KnobValue, Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload
from circinus.profiler.prefix_cache import CacheEntry, PrefixCache, fingerprints


def entry(output: Payload = "out", seconds: float = 1.0) -> CacheEntry:
    return CacheEntry(output=output, seconds=seconds, output_bytes=5)


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


def test_of_equal_worth_the_least_recently_used_goes_first() -> None:
    # About 1,370 bytes each: two fit into 3,000.
    cache = PrefixCache(3000)
    cache.put("op", "old", entry("x" * 350))
    cache.put("op", "used", entry("x" * 350))
    cache.get("op", "old")
    cache.put("op", "new", entry("x" * 350))
    assert cache.get("op", "used") is None
    assert cache.get("op", "old") is not None
    assert cache.get("op", "new") is not None
    assert cache.statistics.evictions == 1


def test_what_is_cheap_to_make_again_per_byte_goes_first() -> None:
    cache = PrefixCache(3000)
    cache.put("op", "dear", entry("x" * 350, seconds=9.0))
    cache.put("op", "cheap", entry("x" * 350, seconds=0.1))
    cache.put("op", "new", entry("x" * 350, seconds=1.0))
    assert cache.get("op", "cheap") is None
    assert cache.get("op", "dear") is not None


def test_what_is_dear_but_never_asked_for_goes_in_the_end() -> None:
    cache = PrefixCache(3000)
    cache.put("op", "dear", entry("x" * 350, seconds=9.0))
    for number in range(20):
        cache.put("op", str(number), entry("x" * 350, seconds=1.0))
    assert cache.get("op", "dear") is None


def test_many_hits_do_not_let_the_queue_grow() -> None:
    cache = PrefixCache()
    cache.put("op", "input", entry())
    tracemalloc.start()
    for _ in range(20_000):
        cache.get("op", "input")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000


@pytest.mark.parametrize("size", [50, 5_000])
def test_resident_memory_stays_under_the_limit(size: int) -> None:
    limit = 2_000_000
    tracemalloc.start()
    cache = PrefixCache(limit)
    for number in range(20_000_000 // (size + 2000)):
        fingerprint, content = f"{number:032}", f"{number:031}x"
        cache.put(fingerprint, content, entry(np.zeros(size, np.uint8), seconds=number % 7))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cache.statistics.evictions > 0
    assert held <= limit


CHURN = """
import numpy as np
from circinus.profiler.prefix_cache import CacheEntry, PrefixCache

def resident():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])

limit = 20_000_000
cache, rng = PrefixCache(limit), np.random.default_rng(0)
before, most, put = resident(), 0, 0
for number in range(2_000):
    size = int(rng.integers(100, 200_000 if number % 2 else 3_000))
    bytes_ = rng.integers(0, 255, size, dtype=np.uint8)
    output = bytes_ if number % 3 else {"text": "x" * size, "list": [1.0] * (size // 100)}
    entry = CacheEntry(output=output, output_bytes=size, seconds=float(number % 7))
    cache.put(f"{number:032}", f"{number:031}x", entry)
    put += size
    most = max(most, resident() - before)
assert put > 4 * limit
print(most / limit)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_the_process_does_not_grow_by_more_than_the_limit() -> None:
    # In a process of its own: what others freed before would hide what is taken.
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", CHURN], cwd=root, capture_output=True, text=True, check=True
    )
    assert 0.2 < float(done.stdout) <= 1


@dataclass
class LeaseRecords:
    entries: dict[tuple[str, str], CacheEntry] = field(default_factory=dict)

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        return self.entries.get((fingerprint, content))

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        self.entries[(fingerprint, content)] = entry


def test_what_memory_gave_up_comes_back_from_the_store() -> None:
    cache = PrefixCache(0, store=LeaseRecords())
    cache.put("op", "input", entry("there"))
    assert cache.get("op", "input") == entry("there")
    assert cache.get("op", "other") is None
    statistics = cache.statistics
    assert (statistics.hits, statistics.misses, statistics.stored_hits) == (1, 1, 1)


def test_what_the_store_gave_is_held_in_memory() -> None:
    store = LeaseRecords({("op", "input"): entry("there")})
    cache = PrefixCache(store=store)
    cache.get("op", "input")
    store.entries.clear()
    assert cache.get("op", "input") == entry("there")
    assert cache.statistics.stored_hits == 1


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
        assert dataclasses.astuple(cache.statistics) == (0, 0, 0, 0, 0, 0, 0, 0.0)


def test_replacing_an_entry_gives_its_memory_back() -> None:
    cache = PrefixCache()
    cache.put("op", "input", entry("x" * 1000))
    before = cache.statistics.held_bytes
    cache.put("op", "input", entry("y" * 1000))
    assert cache.statistics.held_bytes == before
    assert cache.statistics.entries == 1
