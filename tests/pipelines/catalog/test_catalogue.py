"""What every built-in pipeline does, see `pipelines.model.operators.OperatorFunction`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.processes import ProcessPool
from circinus.pipelines.catalog.material import PARTS
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.pipeline import Pipeline, inputs_of, output_of, run_operator
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.registry import load_pipeline
from circinus.profiler.execution import Completed, FailedRun

ROOT = Path(__file__).parents[3]
NAMES = tuple(
    sorted(
        point.name
        for point in entry_points(group="circinus.pipelines")
        if point.value.startswith("circinus.")
    )
)
EXTRAS = (
    *("bm25s", "cv2", "ctranslate2", "faster_whisper", "jiwer", "onnxruntime", "PIL"),
    *("pocketsphinx", "rapidfuzz", "rapidocr", "rouge_score", "tesserocr", "tokenizers"),
    "xllamacpp",
)
HEAVY = ("sklearn", "torch")
SEED = 2  # of tests: planning and reporting have others, see `pipelines.catalog.material`
LARGE = 100 * 10**6


@pytest.fixture(params=NAMES)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return here(request.param)


def here(name: str) -> Pipeline:
    pipeline = load_pipeline(name)
    if lacking := pipeline.available():
        pytest.skip(f"missing: {', '.join(map(str, lacking))}")
    return pipeline


def examples(pipeline: Pipeline, count: int, seed: int = SEED) -> Sequence[Example]:
    assert pipeline.examples is not None
    return pipeline.examples(count, seed).examples


def covering(pipeline: Pipeline) -> list[Configuration]:
    """Configurations in which every value of every knob occurs, unlike ones together."""
    slots = pipeline.graph.slots
    count = max(len(slot.knob.values) for slot in slots)
    return [
        Configuration(
            tuple(
                (
                    slot.operator,
                    slot.knob.name,
                    slot.knob.values[(i + shift) % len(slot.knob.values)],
                )
                for shift, slot in enumerate(slots)
            )
        )
        for i in range(count)
    ]


def outputs_of(pipeline: Pipeline, item: Payload, configuration: Configuration) -> dict[str, str]:
    """What every operator hands on, hashed, by its name."""
    outputs: dict[str, Payload] = {}
    for name, operator in pipeline.by_name.items():
        inputs = inputs_of(pipeline.graph, name, item, outputs)
        before = content_hash(inputs)
        outputs[name] = run_operator(operator, inputs, configuration)
        assert content_hash(inputs) == before, f"{name} changes its inputs"
    return {name: content_hash(output) for name, output in outputs.items()}


def test_every_knob_value_runs_and_scores_in_0_to_1(pipeline: Pipeline) -> None:
    met: set[tuple[str, str, KnobValue]] = set()
    for configuration in covering(pipeline):
        met.update(configuration.values)
        for example in examples(pipeline, 2):
            score = pipeline.score_of(pipeline.run(example.input, configuration), example.expected)
            assert 0 <= score <= 1
    every = {(s.operator, s.knob.name, v) for s in pipeline.graph.slots for v in s.knob.values}
    assert met == every


def test_what_is_expected_scores_1(pipeline: Pipeline) -> None:
    for example in examples(pipeline, 3):
        assert pipeline.score_of(example.expected, example.expected) == 1.0


def test_outputs_are_the_same_whatever_came_before(pipeline: Pipeline) -> None:
    # Other inputs and other configurations in between: state, or a generator that goes on,
    # would show in what comes second.
    items = [example.input for example in examples(pipeline, 3)]
    chosen = covering(pipeline)[:3]
    first = {
        (i, c): outputs_of(pipeline, item, configuration)
        for i, item in enumerate(items)
        for c, configuration in enumerate(chosen)
    }
    for c in reversed(range(len(chosen))):
        for i in reversed(range(len(items))):
            assert outputs_of(pipeline, items[i], chosen[c]) == first[i, c]


def test_outputs_depend_on_the_knobs_of_the_operator_and_its_ancestors_only(
    pipeline: Pipeline,
) -> None:
    item = examples(pipeline, 1)[0].input
    one, other = covering(pipeline)[:2]
    before = outputs_of(pipeline, item, one)
    names = list(pipeline.by_name)
    for position, lineage in enumerate(pipeline.graph.lineages):
        upstream = {pipeline.graph.operators[i].name for i in lineage}
        mixed = Configuration(
            tuple(
                mine if mine[0] in upstream else theirs
                for mine, theirs in zip(one.values, other.values, strict=True)
            )
        )
        assert outputs_of(pipeline, item, mixed)[names[position]] == before[names[position]]


def test_data_sets_of_a_seed_are_equal_and_a_longer_one_begins_with_the_shorter(
    pipeline: Pipeline,
) -> None:
    shorter, longer = examples(pipeline, 2), examples(pipeline, 4)
    assert [hashed(e) for e in shorter] == [hashed(e) for e in longer[:2]]


def hashed(example: Example) -> tuple[str, str]:
    return content_hash(example.input), content_hash(example.expected)


def test_sets_for_planning_reporting_and_tests_share_no_input(pipeline: Pipeline) -> None:
    sets = [{hashed(e)[0] for e in examples(pipeline, 12, seed)} for seed in range(PARTS)]
    assert len(set.union(*sets)) == 12 * PARTS


def test_features_are_a_short_vector_of_numbers(pipeline: Pipeline) -> None:
    assert pipeline.features is not None
    vectors = [np.asarray(pipeline.features(e.input)) for e in examples(pipeline, 4)]
    assert {vector.ndim for vector in vectors} == {1}
    assert len({len(vector) for vector in vectors}) == 1
    assert np.isfinite(vectors).all()
    assert len({tuple(vector) for vector in vectors}) == 4  # they tell inputs apart


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_is_listed_where_its_extra_is_not_installed(name: str) -> None:
    code = (
        "import sys\n"
        f"for name in {EXTRAS}: sys.modules[name] = None\n"  # as if it were not installed
        "from circinus.pipelines.registry import load_pipeline\n"
        f"pipeline = load_pipeline({name!r})\n"
        "print([need.install for need in pipeline.available()])\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    missing, heavy = done.stdout.splitlines()
    assert (f"circinus[{name}]" in missing) == (name != "digits")
    assert heavy == "[]"


# --- Inputs that cannot be digested ----------------------------------------------------


@dataclass(frozen=True)
class Served:
    """A pipeline in a process of its own, and what each of its operators is given."""

    pipeline: Pipeline
    pool: ProcessPool
    configuration: Configuration
    inputs: Mapping[str, Payload]

    def run(self, operator: str, inputs: Payload) -> Completed | FailedRun:
        return self.pool.run(self.pipeline.by_name[operator], inputs, self.configuration)


@contextmanager
def served(name: str, memory_bytes: int) -> Iterator[Served]:
    pipeline = here(name)
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)
    settings = ProfilingPoolSettings(workers=1, timeout_s=20.0, memory_bytes=memory_bytes)
    item = examples(pipeline, 1)[0].input
    outputs: dict[str, Payload] = {}
    inputs: dict[str, Payload] = {}
    for operator in pipeline.by_name.values():
        inputs[operator.name] = inputs_of(pipeline.graph, operator.name, item, outputs)
        outputs[operator.name] = run_operator(operator, inputs[operator.name], configuration)
    output_of(pipeline.graph, outputs)
    with ProcessPool(name, SystemClock(), settings) as pool:
        yield Served(pipeline, pool, configuration, inputs)


def malformed(good: Payload, size: int = LARGE) -> dict[str, Payload]:
    """Empty, cut off, of another type, and far too large, of the kind that is expected."""
    large: Payload = b"\0" * size
    if isinstance(good, np.ndarray):
        large = np.zeros(size // good.dtype.itemsize, good.dtype)
        # Half of a recording is a recording: what is cut off there is a sample.
        half = good.ravel()[: good.size // 2] if good.ndim > 1 else good.tobytes()[:-1]
        return {"empty": good[:0], "cut off": half, "large": large}
    if isinstance(good, dict):
        name, value = next(iter(good.items()))
        rest = {key: other for key, other in good.items() if key != name}
        swollen: Payload = ["x" * 1000] * (size // 1000) if isinstance(value, list) else "x" * size
        return {"empty": {}, "cut off": rest, "large": {**good, name: swollen}}
    return {"empty": "", "cut off": None, "large": large}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_cannot_be_digested_is_a_failure_with_its_cause_and_work_goes_on(
    name: str,
) -> None:
    with served(name, 2**30) as at:
        source = at.pipeline.graph.operators[0].name
        for operator, good in at.inputs.items():
            for kind, wrong in {**malformed(good), "another type": 3}.items():
                done = at.run(operator, wrong)
                if operator == source:
                    assert isinstance(done, FailedRun), (operator, kind)
                if isinstance(done, FailedRun):
                    assert done.cause, (operator, kind)
            assert isinstance(at.run(operator, good), Completed), operator


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_input_beyond_the_limit_on_memory_costs_the_worker_and_is_told_so(name: str) -> None:
    with served(name, 2**29) as at:  # a quarter of what the product allows
        source = at.pipeline.graph.operators[0].name
        done = at.run(source, malformed(at.inputs[source], 3 * LARGE)["large"])
        assert isinstance(done, FailedRun)
        assert done.cause == (
            "the worker process died (out of memory): CIRCINUS_CALL_MEMORY_BYTES allows "
            f"{2**29} bytes beyond the loaded pipeline"
        )
        assert isinstance(at.run(source, at.inputs[source]), Completed)  # of another worker
