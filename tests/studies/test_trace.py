from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.studies.trace import study
from circinus.studies.trace.study import TraceProgress

# Source `scale` and the branches `left`, `right`, joined by `join`: 2 * 3 * 2 * 1 configurations.
# Every operator moves a manual clock: t(scale) = 1, t(left) = power, t(right) = 0.5,
# t(join) = 0.25, each a little longer with every run, so that a second run would show.


@dataclass
class World:
    """Operators that take time by a clock of their own, and count their runs."""

    clock: ManualClock = field(default_factory=ManualClock)
    runs: dict[str, int] = field(default_factory=dict)
    fails_on: float | None = None

    def take(self, operator: str, seconds: float) -> None:
        self.runs[operator] = self.runs.get(operator, 0) + 1
        self.clock.sleep(seconds + self.runs[operator] / 1024)

    def scale(self, inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, float)
        self.take("scale", 1.0)
        return inputs * float(knobs["factor"])

    def left(self, inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, float)
        self.take("left", float(knobs["power"]))
        if self.fails_on is not None and inputs == self.fails_on and knobs["power"] == 2:
            raise RuntimeError("no roots today")
        return [inputs] * int(knobs["power"])

    def right(self, inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, float)
        self.take("right", 0.5)
        return inputs + (1.0 if knobs["shift"] else 0.0)

    def join(self, inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, dict)
        assert isinstance(inputs["left"], list)
        assert isinstance(inputs["right"], float)
        self.take("join", 0.25)
        return len(inputs["left"]) * inputs["right"]

    def pipeline(self) -> Pipeline:
        def operator(
            run: Callable[[Payload, Settings], Payload], *after: str, **knobs: tuple[float, ...]
        ) -> Operator:
            named = tuple(Knob(name=name, values=values) for name, values in knobs.items())
            spec = OperatorSpec(name=run.__name__, after=after, knobs=named)
            return Operator(spec=spec, run=run)

        return Pipeline(
            name="diamond",
            operators=(
                operator(self.scale, factor=(1, 2)),
                operator(self.left, "scale", power=(1, 2, 3)),
                operator(self.right, "scale", shift=(False, True)),
                operator(self.join, "left", "right"),
            ),
            score=lambda output, expected: 1.0 / (1.0 + abs(output - expected)),
            features=lambda item: np.array([item, 1.0]),
        )


DATA = Dataset(
    name="numbers", examples=[Example(input=float(i), expected=2.0 * i) for i in range(1, 5)]
)


@pytest.fixture
def world() -> World:
    return World()


def measured(
    world: World, out: Path, data: Dataset = DATA, *, overwrite: bool = False
) -> study.TraceSummary:
    return study.run(world.pipeline(), data, out, overwrite=overwrite, clock=world.clock)


def test_a_trace_that_is_there_is_not_touched(world: World, tmp_path: Path) -> None:
    measured(world, tmp_path)
    before = (tmp_path / "trace.npz").read_bytes()
    with pytest.raises(InvalidInput, match="out must not hold a trace yet"):
        measured(World(), tmp_path)
    assert (tmp_path / "trace.npz").read_bytes() == before


def test_a_file_in_place_of_the_folder_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="out must be a folder"):
        measured(world, tmp_path / "file")
    assert world.runs == {}


def test_too_many_configurations_are_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "LARGEST_SPACE", 11)
    with pytest.raises(InvalidInput, match=r"must have at most 11 configurations, got 12\."):
        measured(world, tmp_path)
    monkeypatch.setattr(study, "LARGEST_SPACE", 12)
    assert measured(world, tmp_path).configurations == 12


def test_an_input_that_is_no_payload_is_refused_before_anything_runs(
    world: World, tmp_path: Path
) -> None:
    wrong = Example(input=object(), expected=1.0)  # type: ignore[arg-type]  # that is the point
    data = Dataset(name="wrong", examples=[*DATA.examples, wrong])
    with pytest.raises(InvalidInput, match="payload must be"):
        measured(world, tmp_path / "out", data)
    assert world.runs == {}
    assert not (tmp_path / "out").exists()


def test_a_failed_measurement_is_nan_and_named(tmp_path: Path) -> None:
    world = World(fails_on=4.0)  # factor 1 on input 4, factor 2 on input 2
    summary = measured(world, tmp_path)
    trace = load_trace(tmp_path)
    space = ConfigurationSpace(trace.graph)
    failed = np.zeros((12, 4), dtype=bool)
    for number in range(12):
        knobs = space.configuration(number).as_dict()
        if knobs["left"]["power"] == 2:
            failed[number, 3 if knobs["scale"]["factor"] == 1 else 1] = True
    assert np.array_equal(np.isnan(trace.score), failed)
    assert np.array_equal(np.isnan(trace.latency_s[:, 0]), failed)
    assert summary.missing == failed.sum() == 4
    assert summary.causes == ("left: RuntimeError: no roots today",)


def test_the_trace_is_what_running_the_pipeline_gives(world: World, tmp_path: Path) -> None:
    pipeline = world.pipeline()
    summary = study.run(pipeline, DATA, tmp_path, clock=world.clock)
    trace = load_trace(tmp_path)
    space = ConfigurationSpace(pipeline.graph)
    assert trace.graph == pipeline.graph
    assert (summary.configurations, summary.operators, summary.inputs) == (12, 4, 4)
    assert (summary.missing, summary.causes, summary.resumed) == (0, (), 0)
    for number in range(space.size):
        configuration = space.configuration(number)
        indices = space.indices([number])[0]
        assert np.array_equal(trace.configurations[number], indices)
        for n, example in enumerate(DATA.examples):
            output = pipeline.run(example.input, configuration)
            score = pipeline.score_of(output, example.expected)
            assert trace.score[number, n] == pytest.approx(score)
    assert trace.features.tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]
    assert trace.input_bytes.tolist() == [3, 3, 3, 3]  # "1.0"


def test_seconds_and_bytes_depend_on_the_lineage_only(world: World, tmp_path: Path) -> None:
    measured(world, tmp_path)
    trace = load_trace(tmp_path)  # which checks it
    scale, left, right, join = (trace.latency_s[:, o, 0] for o in range(4))
    assert len(set(scale.tolist())) == 2
    assert len(set(left.tolist())) == 6
    assert len(set(right.tolist())) == 4
    assert len(set(join.tolist())) == 12
    powers = np.array([1, 2, 3])[trace.configurations[:, 1]]
    assert np.all((left >= powers) & (left < powers + 0.1))


def test_every_operator_runs_once_per_lineage_and_input(world: World, tmp_path: Path) -> None:
    measured(world, tmp_path)
    # lineages x 4 inputs, and one warm-up per setting of the operator
    assert world.runs == {
        "scale": 2 * 4 + 2,
        "left": 6 * 4 + 3,
        "right": 4 * 4 + 2,
        "join": 12 * 4 + 1,
    }


def test_without_a_feature_map_the_trace_has_generic_features(
    world: World, tmp_path: Path
) -> None:
    study.run(replace(world.pipeline(), features=None), DATA, tmp_path, clock=world.clock)
    assert load_trace(tmp_path).features.tolist() == [[1], [2], [3], [4]]  # numbers: their value


def test_what_a_pipeline_prepares_is_there_before_the_first_run(
    world: World, tmp_path: Path
) -> None:
    prepared: list[dict[str, int]] = []
    pipeline = replace(world.pipeline(), prepare=lambda: prepared.append(dict(world.runs)))
    study.run(pipeline, DATA, tmp_path, clock=world.clock)
    assert prepared == [{}]


def test_overwriting_replaces_the_trace_and_leaves_nothing_behind(
    world: World, tmp_path: Path
) -> None:
    measured(world, tmp_path)
    fewer = Dataset(name=DATA.name, examples=DATA.examples[:2])
    measured(World(), tmp_path, fewer, overwrite=True)
    assert load_trace(tmp_path).score.shape == (12, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipeline.yaml", "trace.npz"]


class CutOff(Exception):
    """Stands for whatever ends a study in the middle."""


def cut_off_after(inputs: int) -> Callable[[TraceProgress], None]:
    def observer(progress: TraceProgress) -> None:
        if progress.inputs_done == inputs and progress.measured > 12 * inputs:
            raise CutOff

    return observer


def test_a_study_that_was_cut_off_goes_on_with_the_next_input(tmp_path: Path) -> None:
    whole, first, second = World(), World(), World()
    measured(whole, tmp_path / "whole")
    out = tmp_path / "out"
    with pytest.raises(CutOff):
        study.run(first.pipeline(), DATA, out, clock=first.clock, observer=cut_off_after(2))
    assert not (out / "trace.npz").exists()
    summary = measured(second, out)
    assert summary.resumed == 2
    assert second.runs["join"] == 12 * 2 + 1
    found, expected = load_trace(out), load_trace(tmp_path / "whole")
    assert np.array_equal(found.score, expected.score)
    assert np.array_equal(found.latency_s[:, :, :2], expected.latency_s[:, :, :2])


def test_parts_of_other_data_are_not_used(tmp_path: Path) -> None:
    world = World()
    with pytest.raises(CutOff):
        study.run(world.pipeline(), DATA, tmp_path, clock=world.clock, observer=cut_off_after(2))
    other = Dataset(name="numbers", examples=[DATA.examples[0], *DATA.examples[2:]])
    assert measured(World(), tmp_path, other).resumed == 1


def test_parts_of_other_versions_are_not_used(tmp_path: Path) -> None:
    world = World()
    with pytest.raises(CutOff):
        study.run(world.pipeline(), DATA, tmp_path, clock=world.clock, observer=cut_off_after(2))
    pipeline = World().pipeline()
    newer = replace(pipeline, operators=tuple(replace(o, version="2") for o in pipeline.operators))
    assert study.run(newer, DATA, tmp_path, clock=ManualClock()).resumed == 0


def test_a_torn_part_is_measured_again(tmp_path: Path) -> None:
    world = World()
    with pytest.raises(CutOff):
        study.run(world.pipeline(), DATA, tmp_path, clock=world.clock, observer=cut_off_after(2))
    part = tmp_path / "parts" / "input-000001.npz"
    part.write_bytes(part.read_bytes()[:100])
    assert measured(World(), tmp_path).resumed == 1


def test_progress_counts_up_to_the_end_with_the_time_left(world: World, tmp_path: Path) -> None:
    told: list[TraceProgress] = []
    study.run(world.pipeline(), DATA, tmp_path, clock=world.clock, observer=told.append)
    assert (told[0].measured, told[0].left_s) == (0, None)
    counts = [p.measured for p in told]
    assert counts == sorted(counts)
    assert len(set(counts)) == 49  # every pair takes longer than the observer is spared
    for p in told[1:]:
        assert p.left_s == pytest.approx(p.elapsed_s / p.measured * (48 - p.measured))
    last = told[-1]
    assert (last.inputs_done, last.measured, last.pairs, last.left_s) == (4, 48, 48, 0.0)


def test_the_bill_is_what_ran_and_what_prefixes_saved(world: World, tmp_path: Path) -> None:
    summary = measured(world, tmp_path)
    assert summary.spent_s == pytest.approx(world.clock.now())
    assert summary.saved_s > summary.spent_s  # 12 configurations share 2, 6 and 4 prefixes


def test_a_pipeline_that_draws_is_measured_in_every_draw(world: World, tmp_path: Path) -> None:
    pipeline = world.pipeline()
    right = replace(
        pipeline.by_name["right"], spec=replace(pipeline.by_name["right"].spec, draws=True)
    )
    operators = tuple(right if o.name == "right" else o for o in pipeline.operators)
    summary = study.run(replace(pipeline, operators=operators), DATA, tmp_path, clock=world.clock)
    trace = load_trace(tmp_path)
    assert summary.draws == trace.draws == MOST_DRAWS
    assert trace.score.shape == (12, 4 * MOST_DRAWS)
    assert np.isfinite(trace.score).all()
    # What does not draw is run once for each input and setting of its lineage, the others in each
    # draw; each once more for each of its settings, to be warm.
    runs = {
        "scale": 2 * 4,
        "left": 6 * 4,
        "right": 4 * 4 * MOST_DRAWS,
        "join": 12 * 4 * MOST_DRAWS,
    }
    warm = {"scale": 2, "left": 3, "right": 2, "join": 1}
    assert world.runs == {name: runs[name] + warm[name] for name in runs}
    seconds = trace.latency_s.reshape(12, 4, MOST_DRAWS, 4)
    at = trace.graph.position
    assert (seconds[:, at("scale")] == seconds[:, at("scale"), :1]).all()
    assert (np.diff(seconds[:, at("right")], axis=1) > 0).all()  # a later draw was a later run


def test_what_draws_undeclared_is_measured_once_on_each_input(tmp_path: Path) -> None:
    world, told = World(), [0]

    def noisy(inputs: Payload, knobs: Settings) -> Payload:
        told[0] += 1
        return [world.scale(inputs, knobs), told[0]]

    def score(output: Payload, expected: Payload) -> float:
        assert isinstance(output, list)
        return float(output[0] == expected)

    scale = replace(world.pipeline().by_name["scale"], run=noisy)
    pipeline = Pipeline(name="noisy", operators=(scale,), score=score)
    study.run(pipeline, DATA, tmp_path, clock=world.clock)
    assert load_trace(tmp_path).score.tolist() == [[0.0] * 4, [1.0] * 4]


def test_a_study_of_draws_that_was_cut_off_goes_on_with_the_next_input(tmp_path: Path) -> None:
    def drawing(world: World) -> Pipeline:
        pipeline = world.pipeline()
        operators = (replace(o, spec=replace(o.spec, draws=True)) for o in pipeline.operators)
        return replace(pipeline, operators=tuple(operators))

    first, second = World(), World()
    with pytest.raises(CutOff):
        study.run(drawing(first), DATA, tmp_path, clock=first.clock, observer=cut_off_after(2))
    summary = study.run(drawing(second), DATA, tmp_path, clock=second.clock)
    assert summary.resumed == 2
    assert second.runs["join"] == 12 * 2 * MOST_DRAWS + 1
    assert np.isfinite(load_trace(tmp_path).score).all()
