"""What a failed measurement counts as, by the query's `data.on_failure`.

| `on_failure` | an input on which a configuration failed |
| --- | --- |
| `score_zero` | scores zero, wherever it fails |
| `drop` | scores zero there; leaves the population once it failed in all of `_ENOUGH` or more |
| `stop` | ends the search |

A cause apart from the input (`Failure.ends_planning`) ends the search in every mode.

An input leaves the population by counting, in every configuration, as the mean of the others: that
moves no figure, and what was paired by input stays so. The accuracy states how many it leaves out,
and never holds for future inputs: requests with such inputs fail.

A failed run is no sample of latency: its seconds and bytes are those of another input of the
configuration, in turn. A configuration that failed on all of its first `_TRIES` inputs has nothing
to take them from, and has failed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.draws import MOST_DRAWS, draws_of
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.profile import (
    UNPLANNABLE,
    BoolArray,
    Evaluator,
    Failure,
    FloatArray,
    IntArray,
    Profile,
)
from circinus.pipelines.model.query import OnFailure
from circinus.pipelines.model.slo import Estimate

_ENOUGH = 3  # configurations, where there are as many: fewer may share what is wrong
_TRIES = 3  # inputs: where one in ten fails, all three do once in a thousand configurations
_MOST_KINDS = 5  # of failures that are reported, the most frequent ones


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """Failures of one operator with one cause."""

    operator: (
        str  # which operator failed; `score` when the metric did, `input` when it was no payload
    )
    cause: str  # of the first of them, in words
    input: int  # index in the data, of the first of them
    inputs: int  # on how many inputs, in any configuration
    measurements: int  # how many (configuration, input) pairs

    def __str__(self) -> str:
        """Return it in words."""
        more = f" and {self.inputs - 1} more" if self.inputs > 1 else ""
        return f"{self.operator} failed on input {self.input}{more}: {self.cause}"


class Counting:
    """What profiles count as, by all profiles together.

    `left_out` and what a profile counts as may change with every one that is learnt.
    """

    def __init__(self, on_failure: OnFailure, configurations: int) -> None:
        self._on_failure = on_failure
        self._enough = min(_ENOUGH, configurations)
        self._profiles: dict[Configuration, Profile] = {}  # as they were measured
        self.left_out: frozenset[int] = frozenset()  # inputs, indices in the data
        self.end: Failure | None = None  # the first that ends planning

    def learn(self, profiles: Iterable[Profile]) -> None:
        """Learn profiles as they were measured; the newest of a configuration counts."""
        for profile in profiles:
            self._profiles[profile.configuration] = profile
            ending = (failure for failure in profile.failures if failure.ends_planning)
            self.end = self.end or next(ending, None)
        if self._on_failure is OnFailure.DROP:
            self.left_out = _failing_everywhere(self._profiles.values(), self._enough)

    def counted(self, configuration: Configuration) -> Profile:
        """Return what was measured of a configuration, as it counts by now."""
        profile = self._profiles[configuration]
        if not (profile.failures or self.left_out) or self._on_failure is OnFailure.STOP:
            return profile
        failed = _failed_columns(profile)
        out = np.isin(profile.inputs, list(self.left_out))
        good = np.flatnonzero(~(failed | out))
        if not len(good) or not (failed | out).any():
            return profile
        score = np.where(failed, 0.0, profile.score)
        score[out] = score[~out].mean()
        return replace(
            profile,
            score=score,
            operator_s=_filled(profile.operator_s, failed, good),
            output_bytes=_filled(profile.output_bytes, failed, good),
            waited_s=None if profile.waited_s is None else _filled(profile.waited_s, failed, good),
            input_bytes=_filled(profile.input_bytes[None], failed, good)[0],
            used=_usage_filled(profile.used, good),
        )

    @property
    def failures(self) -> tuple[FailureCount, ...]:
        """What failed, what ends planning first, then the most frequent."""
        kinds: dict[tuple[str, str], list[Failure]] = defaultdict(list)
        for failure in (f for profile in self._profiles.values() for f in profile.failures):
            kind = re.sub(r"[\d.]+", "", failure.cause.partition(":")[0])  # times and codes differ
            kinds[failure.operator, kind].append(failure)
        counts = [
            FailureCount(
                operator=operator,
                cause=alike[0].cause,
                input=alike[0].input,
                inputs=len({failure.input for failure in alike}),
                measurements=len(alike),
            )
            for (operator, _), alike in kinds.items()
        ]
        counts.sort(key=lambda c: (not c.cause.startswith(UNPLANNABLE), -c.measurements))
        return tuple(counts[:_MOST_KINDS])


class Tolerant(Counting):
    """An Evaluator whose failed measurements are finite, and count by the query's rule."""

    def __init__(self, evaluator: Evaluator, on_failure: OnFailure, configurations: int) -> None:
        super().__init__(on_failure, configurations)
        self._evaluator = evaluator

    @property
    def graph(self) -> PipelineGraph:
        """The pipeline, see `Evaluator`."""
        return self._evaluator.graph

    @property
    def population(self) -> int:
        """Number of inputs, those left out included."""
        return self._evaluator.population

    @property
    def spent_s(self) -> float:
        """Operator seconds paid so far, see `Evaluator`."""
        return self._evaluator.spent_s

    @property
    def calls_s(self) -> float:
        """Of these, what was waited for endpoints, see `Evaluator`."""
        return self._evaluator.calls_s

    @property
    def calls_usd(self) -> float:
        """US dollars that calls cost so far, see `Evaluator`."""
        return self._evaluator.calls_usd

    @property
    def width(self) -> int:
        """How many measurements are made at once, see `Evaluator`."""
        return self._evaluator.width

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Return what counts of a configuration, see `Evaluator.measure`."""
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Return the profile of each (`Evaluator.measure_each`); more inputs where all failed."""
        self.learn(self._evaluator.measure_each(wanted))
        while again := [
            (configuration, len(self._profiles[configuration].inputs) + 1)
            for configuration, _ in wanted
            if self._is_to_be_tried(self._profiles[configuration])
        ]:
            self.learn(self._evaluator.measure_each(again))
        return tuple(self.counted(configuration) for configuration, _ in wanted)

    def _is_to_be_tried(self, profile: Profile) -> bool:
        few = len(profile.inputs) < min(_TRIES, self.population)
        all_failed = bool(_failed_columns(profile).all())
        tolerated = self._on_failure is not OnFailure.STOP and self.end is None
        return few and all_failed and tolerated


def standing(profile: Profile) -> BoolArray:
    """Return which inputs of a counted profile its figures rest on, (n,): not those left out.

    One that failed scores zero, unless it was left out for the mean of the others.
    """
    return ~(_failed_columns(profile) & (profile.score > 0))


def standing_on(known: Estimate, profile: Profile) -> Estimate:
    """Return an accuracy with the number of inputs that it stands on, and of those left out."""
    stands = standing(profile)
    return replace(known, inputs=int(stands.sum()), left_out=int((~stands).sum()))


def _failed_columns(profile: Profile) -> BoolArray:
    if not profile.failures:
        return np.zeros(len(profile.inputs), dtype=np.bool_)
    pairs = profile.inputs * MOST_DRAWS + draws_of(profile.inputs)
    failed = [failure.input * MOST_DRAWS + failure.draw for failure in profile.failures]
    return np.isin(pairs, failed)


def _failing_everywhere(profiles: Collection[Profile], enough: int) -> frozenset[int]:
    """Return the inputs that failed in each of at least `enough` configurations that met them.

    Where operators draw, in each of as many draws.
    """
    met, failed = Counter[int](), Counter[int]()
    for profile in profiles:
        failed.update(failure.input for failure in profile.failures)
    for profile in profiles if failed else ():
        met.update(profile.inputs.tolist())
    return frozenset(i for i, count in failed.items() if count >= enough and count == met[i])


def _filled(figures: FloatArray, failed: BoolArray, good: IntArray) -> FloatArray:
    """Return figures, shape (rows, n), with those of good inputs, in turn, where it failed."""
    filled = figures.copy()
    filled[:, failed] = figures[:, np.resize(good, int(failed.sum()))]
    return filled


def _usage_filled(used: FloatArray | None, good: IntArray) -> FloatArray | None:
    """Return usage with that of good inputs, in turn, where it is not known.

    What failed attempts are known to have used stays: it was paid.
    """
    if used is None or not (unknown := np.isnan(used).any(axis=(0, 1))).any():
        return used
    filled = used.copy()
    filled[:, :, unknown] = used[:, :, np.resize(good, int(unknown.sum()))]
    return filled
