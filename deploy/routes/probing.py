"""Verifies that a deployment unit's outputs are as good as the reference's.

After adaptive orchestration, 4.5.1: outputs are verified against known inputs. Its 5.2 shows by a
pair of pictures that quality is the same across hardware; here it is a score. Probes are examples
of the pipeline, the same for all units, and its metric scores their outputs. Outputs need not
be equal, and may differ from run to run: their mean score may be below the reference's by a
tolerance at most. Units that others run are probed over HTTP.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from circinus.deploy.routes.endpoints import (
    ANSWER_S,
    EndpointAway,
    EndpointFailed,
    opened_endpoint,
)
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline, Score, score_by
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.io.strict import read_json
from circinus.pipelines.model.payload import Payload
from circinus.profiler.scoring import Scoring

_SEED = 0  # of the examples: all units, at any time, get the same


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How outputs are verified."""

    probes: int = 8  # examples that each unit runs, `>= 0`; 0: nothing is verified
    # deviates: outputs-verified-by-score
    tolerance: float = 0.02  # that a unit's mean score may be below the reference's, in [0, 1]

    def __post_init__(self) -> None:
        checks.at_least("verify.probes", self.probes, 0)
        checks.probability("verify.tolerance", self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitProof:
    """The result of probing a unit."""

    reference: str  # the unit whose score counts
    score: float | None  # mean over the probes; None: one failed
    reference_score: float
    tolerance: float
    failed: str = ""  # how a probe failed; empty: none did

    @property
    def agrees(self) -> bool:
        """Whether it may take traffic."""
        return self.score is not None and self.score >= self.reference_score - self.tolerance

    @property
    def words(self) -> str:
        """The result, for people."""
        if self.score is None:
            return f"a probe failed: {self.failed}"
        return f"score {self.score:.3f}, that of {self.reference} is {self.reference_score:.3f}"

    @property
    def refusal(self) -> str:
        """Why it may take no traffic, for people; empty: it may."""
        return "" if self.agrees else f"outputs do not agree: {self.words}"


@dataclass(slots=True, kw_only=True, eq=False)
class ProofReference:
    """Holds the scores of units against that of the first one that has a score."""

    tolerance: float
    _reference: tuple[str, float] | None = field(default=None, init=False)

    @property
    def is_known(self) -> bool:
        """Whether there was a score."""
        return self._reference is not None

    def proof(self, unit: str, score: float | None, failed: str = "") -> UnitProof:
        """Return the verification of a unit by its mean score; None: a probe failed."""
        if self._reference is None and score is not None:
            self._reference = (unit, score)
        reference, reference_score = self._reference or (unit, 0.0)
        return UnitProof(
            reference=reference,
            score=score,
            reference_score=reference_score,
            tolerance=self.tolerance,
            failed=failed,
        )


@dataclass(slots=True, eq=False)
class Prober:
    """Runs the probes of one pipeline. Used within one event loop."""

    pipeline: Pipeline
    settings: ProbeSettings
    _examples: Sequence[Example] | None = field(default=None, init=False)
    _reference: ProofReference = field(init=False)

    def __post_init__(self) -> None:
        self._reference = ProofReference(tolerance=self.settings.tolerance)
        if self.wanted:
            rule = "must be 0: the pipeline makes no examples"
            made = self.pipeline.examples is not None
            checks.require(made, "verify.probes", rule, self.settings.probes)
            self._scoring()

    @property
    def wanted(self) -> bool:
        """Whether units have to be verified."""
        return self.settings.probes > 0

    @property
    def has_reference(self) -> bool:
        """Whether it is known what others are held against."""
        return self._reference.is_known

    async def prove(self, unit: str, run: Callable[[Payload], Awaitable[Payload]]) -> UnitProof:
        """Run the probes on a unit, and verify it; the first one is the reference.

        Raises what `run` raises, but for OperatorFailed. There is no result then.
        """
        score, failed = None, ""
        try:
            score = await self._score(run)
        except OperatorFailed as error:
            failed = str(error)
        return self._reference.proof(unit, score, failed)

    async def _score(self, run: Callable[[Payload], Awaitable[Payload]]) -> float:
        if self._examples is None:
            self._examples = await asyncio.to_thread(self._made)
        scoring, scores = self._scoring(), []
        for example in self._examples:
            output = await run(example.input)
            arguments = (output, example.input, example.expected)
            scored = await asyncio.to_thread(scoring.of, *arguments)
            if scored.cause:
                raise OperatorFailed("score", scored.cause)
            scores.append(scored.score)
        return sum(scores) / len(scores)

    def _made(self) -> Sequence[Example]:
        count = self.settings.probes
        if self.pipeline.example_count is not None:
            count = min(count, self.pipeline.example_count)
        make = self.pipeline.examples
        return [] if make is None else list(make(count, _SEED).examples)

    def _scoring(self) -> Scoring:
        return Scoring(self.pipeline, None)


def equal(output: Payload, expected: Payload) -> float:
    """Return 1 for an output that is what was expected, else 0: the metric where none is named."""
    return float(output == expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProbes:
    """The probes for units, and how their answers are scored."""

    examples: Sequence[Example]  # of JSON, at least one
    tolerance: float  # see `ProbeSettings`
    score: Score = equal
    timeout_s: float = ANSWER_S  # of each answer

    def __post_init__(self) -> None:
        checks.at_least("number of probes", len(self.examples), 1)
        checks.probability("tolerance", self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointScore:
    """What an endpoint's answers were worth."""

    score: float | None  # mean, in [0, 1]; None: a probe failed
    failed: str = ""  # how; empty: none did
    is_away: bool = False  # it failed as the endpoint was not reached: it may be later


async def endpoint_score(url: str, probes: EndpointProbes) -> EndpointScore:
    """Return the mean score of an endpoint, over one probe after the other, until one fails.

    The metric runs in another thread. InvalidInput unless the URL is of HTTP or HTTPS.
    """
    scores = []
    async with opened_endpoint(url, timeout_s=probes.timeout_s) as endpoint:
        for number, example in enumerate(probes.examples, 1):
            body = json.dumps(example.input, ensure_ascii=False).encode()
            try:
                output = cast("Payload", read_json(await endpoint.answer(body), "answer"))
                arguments = (probes.score, output, example.expected)
                scores.append(await asyncio.to_thread(score_by, *arguments))
            except (EndpointFailed, InvalidInput, OperatorFailed) as error:
                return EndpointScore(
                    score=None,
                    failed=f"probe {number}: {error}",
                    is_away=isinstance(error, EndpointAway),
                )
    return EndpointScore(score=sum(scores) / len(scores))


async def endpoint_proofs(urls: Mapping[str, str], probes: EndpointProbes) -> dict[str, UnitProof]:
    """Return unit -> result of its probes, of units by URL, all probed at the same time.

    The reference is the first, in their order, of which no probe failed.
    """
    results = await asyncio.gather(*(endpoint_score(url, probes) for url in urls.values()))
    reference = ProofReference(tolerance=probes.tolerance)
    scored = dict(zip(urls, results, strict=True))
    known = {
        unit: reference.proof(unit, each.score, each.failed)
        for unit, each in sorted(scored.items(), key=lambda item: item[1].score is None)
    }
    return {unit: known[unit] for unit in urls}
