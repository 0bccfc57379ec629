from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace, graph_from_dict, load_trace, save_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from tests.pipelines.strategies import graphs

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces" / "digits_clip"


def synthetic_trace(graph: PipelineGraph, inputs: int, seed: int) -> Trace:
    """A trace whose seconds and bytes depend on lineages only, as they must."""
    rng = np.random.default_rng(seed)
    space = ConfigurationSpace(graph)
    rows = space.indices(np.arange(space.size))
    shape = (space.size, len(graph.operators), inputs)
    latency, output = np.zeros(shape, "f4"), np.zeros(shape, "f4")
    for o, lineage in enumerate(graph.lineages):
        names = {graph.operators[i].name for i in lineage}
        columns = [k for k, slot in enumerate(graph.slots) if slot.operator in names]
        _, group = np.unique(rows[:, columns], axis=0, return_inverse=True)
        group = group.reshape(-1)
        latency[:, o] = rng.uniform(0.001, 0.1, (group.max() + 1, inputs))[group]
        output[:, o] = rng.integers(1, 1000, (group.max() + 1, inputs))[group]
    return Trace(
        graph=graph,
        configurations=rows.astype(np.int16),
        score=rng.integers(0, 2, (space.size, inputs)).astype("f4"),
        latency_s=latency,
        output_bytes=output,
        input_bytes=rng.integers(1, 1000, inputs).astype("f4"),
        features=rng.normal(size=(inputs, 2)).astype("f4"),
    )


@given(graph=graphs(most=4), inputs=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_trace_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, graph: PipelineGraph, inputs: int, seed: int
) -> None:
    trace = synthetic_trace(graph, inputs, seed)
    folder = tmp_path_factory.mktemp("trace")

    save_trace(trace, folder)
    loaded = load_trace(folder)

    assert loaded.graph == graph
    for name in (
        "configurations",
        "score",
        "latency_s",
        "output_bytes",
        "input_bytes",
        "features",
    ):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(trace, name))


def test_what_operators_waited_survives_the_disk(trace: Trace, tmp_path: Path) -> None:
    save_trace(trace, tmp_path)
    assert load_trace(tmp_path).waited_s is None
    save_trace(replace(trace, waited_s=(trace.latency_s / 2).astype("f4")), tmp_path)
    loaded = load_trace(tmp_path).waited_s
    assert loaded is not None
    np.testing.assert_array_equal(loaded, trace.latency_s / 2)


def test_waits_of_another_shape_or_of_knobs_downstream_are_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"trace.waited_s must have shape \(4, 2, 3\)"):
        replace(trace, waited_s=trace.latency_s[:, :1])
    waited_s = np.zeros_like(trace.latency_s)
    waited_s[0, 0] = 0.001  # of the first operator under one setting of the second
    with pytest.raises(InvalidInput, match=r"trace.waited_s of a must depend on the knobs"):
        replace(trace, waited_s=waited_s)


@pytest.fixture
def trace() -> Trace:
    """Two operators in a chain, two choices each, three inputs."""
    document = {
        "name": "tiny",
        "operators": [
            {"name": "a", "after": [], "knobs": {"k": [1, 2]}},
            {"name": "b", "after": ["a"], "knobs": {"k": ["x", "y"]}},
        ],
    }
    return synthetic_trace(graph_from_dict(document), 3, 0)


def test_a_score_outside_its_bounds_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"trace.score must be in \[0, 1\] or NaN"):
        replace(trace, score=trace.score + 1.5)


def test_a_shape_that_disagrees_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"trace.latency_s must have shape \(4, 2, 3\)"):
        replace(trace, latency_s=trace.latency_s[:, :1])


def test_an_index_without_a_value_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"configurations of a.k must hold indices in \[0, 2\)"):
        replace(trace, configurations=trace.configurations + 1)


def test_seconds_that_depend_on_a_knob_downstream_are_refused(trace: Trace) -> None:
    seconds = trace.latency_s.copy()
    seconds[1, 0, 0] += 1  # operator a, but only for one value of b's knob
    with pytest.raises(InvalidInput, match=r"trace.latency_s of a must depend on the knobs of"):
        replace(trace, latency_s=seconds)


def drawn(trace: Trace, *drawing: str, draws: int = 3) -> Trace:
    """Return the trace with draws of each input, alike but for the scores."""
    operators = tuple(replace(o, draws=o.name in drawing) for o in trace.graph.operators)
    tiled = {
        name: np.tile(getattr(trace, name), draws)
        for name in ("score", "latency_s", "output_bytes")
    }
    tiled["score"] = np.random.default_rng(1).integers(0, 2, tiled["score"].shape).astype("f4")
    return replace(trace, graph=replace(trace.graph, operators=operators), **tiled)


def test_several_draws_where_nothing_draws_are_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match="one draw of each input, as no operator draws, got 3"):
        drawn(trace)


def test_draws_of_some_inputs_only_are_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"trace.score must have shape \(4, 6\)"):
        replace(drawn(trace, "b"), score=drawn(trace, "b").score[:, :-1])


@pytest.mark.parametrize("name", ["latency_s", "output_bytes"])
def test_what_comes_before_all_that_draws_is_equal_in_all_draws(trace: Trace, name: str) -> None:
    several = drawn(trace, "b")
    later = getattr(several, name).copy()
    later[:, 1, 3:] += 1  # operator b, in its second and third draws
    assert replace(several, **{name: later}).draws == 3
    later[:, 0, 4] += 1  # operator a, of input 1, in the second draw
    with pytest.raises(InvalidInput, match=f"trace.{name} of a must be equal in all draws"):
        replace(several, **{name: later})


def test_what_comes_after_something_that_draws_may_differ_between_draws(trace: Trace) -> None:
    several = drawn(trace, "a")
    later = several.latency_s.copy()
    later[:, 1, 3:] += 1  # operator b, which does not draw itself
    assert replace(several, latency_s=later).draws == 3


def test_draws_survive_the_disk_and_are_found_by_input(trace: Trace, tmp_path: Path) -> None:
    several = drawn(trace, "b")
    save_trace(several, tmp_path)
    loaded = load_trace(tmp_path)
    assert (trace.draws, loaded.draws) == (1, 3)
    np.testing.assert_array_equal(loaded.score, several.score)
    assert loaded.columns(np.array([2, 0])).tolist() == [2, 0, 5, 3, 8, 6]


def test_negative_seconds_are_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"trace.latency_s must be >= 0"):
        replace(trace, latency_s=-trace.latency_s)


def test_a_failed_measurement_may_be_nan_everywhere(trace: Trace) -> None:
    score, seconds = trace.score.copy(), trace.latency_s.copy()
    score[0, 1] = np.nan
    seconds[0, 1, 1] = np.nan
    failed = replace(trace, score=score, latency_s=seconds)
    evaluator = TraceEvaluator(failed, np.arange(3))

    profile = evaluator.measure(ConfigurationSpace(failed.graph).configuration(0), 3)

    assert profile.succeeded.tolist() == [True, False, True]
    assert np.isnan(profile.operator_s[:, 1]).all()
    assert [(f.input, f.cause) for f in profile.failures] == [(1, "the stored measurement failed")]


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="trace must be a readable file"):
        load_trace(tmp_path)


def test_a_torn_file_is_refused(trace: Trace, tmp_path: Path) -> None:
    save_trace(trace, tmp_path)
    arrays = tmp_path / "trace.npz"
    arrays.write_bytes(arrays.read_bytes()[:100])
    with pytest.raises(InvalidInput, match="must be a readable trace"):
        load_trace(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operators": None}, "pipeline.operators must be a list"),
        ({"operators": [1]}, "operator must be a mapping, got 1"),
        ({"name": "no name"}, "pipeline.name must start with a letter"),
        ({"operators": [{"name": "a", "knobs": {"k": 3}}]}, "knob a.k must be a list, got 3"),
        ({"operators": [{"name": "a", "scaling": "magic"}]}, "scaling must be one of"),
        (
            {"operators": [{"name": "b", "after": ["a"]}, {"name": "a"}]},
            "must be in topological order",
        ),
    ],
)
def test_a_pipeline_file_that_breaks_a_rule_is_refused(
    trace: Trace, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    save_trace(trace, tmp_path)
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    with pytest.raises(InvalidInput, match=message):
        load_trace(tmp_path)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared trace is not beside this checkout")
def test_the_shared_trace_of_a_real_pipeline_loads() -> None:
    trace = load_trace(SHARED)

    assert trace.graph.name == "digits_clip"
    assert trace.score.shape == (ConfigurationSpace(trace.graph).size, 160) == (2016, 160)


def test_an_order_that_is_no_permutation_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match="order must be a permutation of 3 inputs"):
        TraceEvaluator(trace, np.array([0, 1, 1]))


def test_a_replay_in_which_nobody_measures_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidInput, match="width must be >= 1, got 0"):
        TraceEvaluator(trace, np.arange(3), width=0)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_time_passes_in_a_replay_as_long_as_the_busiest_measures(trace: Trace, width: int) -> None:
    clock, space = ManualClock(), ConfigurationSpace(trace.graph)
    evaluator = TraceEvaluator(trace, np.arange(3), cached=False, width=width, clock=clock)
    evaluator.measure_each([(space.configuration(0), 1), (space.configuration(1), 2)])
    seconds = trace.latency_s.astype(float).sum(axis=1)
    first, second, third = seconds[0, 0], seconds[1, 0], seconds[1, 1]
    longest = max(first, second, third)
    two = max(longest, min(first, second) + third)  # the last goes to whoever is done first
    after = {1: first + second + third, 2: two, 5: longest}
    assert clock.now() == pytest.approx(after[width])
    assert evaluator.spent_s == pytest.approx(first + second + third)
    evaluator.measure(space.configuration(1), 2)
    assert clock.now() == pytest.approx(after[width])  # known: it takes no time


def test_a_replay_charges_a_prefix_once_with_a_cache_and_always_without(trace: Trace) -> None:
    order = np.array([2, 0, 1])
    space = ConfigurationSpace(trace.graph)
    first, second = space.configuration(0), space.configuration(1)  # unlike in b only
    cached, uncached = TraceEvaluator(trace, order), TraceEvaluator(trace, order, cached=False)

    for evaluator in (cached, uncached):
        evaluator.measure(first, 2)
        evaluator.measure(second, 3)

    seconds = trace.latency_s.astype(float)
    whole = seconds[0][:, [2, 0]].sum() + seconds[1].sum()
    assert uncached.spent_s == pytest.approx(whole)
    assert cached.spent_s == pytest.approx(whole - seconds[0, 0, [2, 0]].sum())
