"""Probes of units that somebody else runs, over HTTP (adaptive orchestration, 4.5.1 and 5.2).

An example's input is sent to a unit as JSON, its answer, JSON too, is the output, and the metric
scores it. What the scores say is told in `probing`, for these as for units that run here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from circinus.deploy.runtime.endpoints import (
    ANSWER_S,
    EndpointAway,
    EndpointFailed,
    opened_endpoint,
)
from circinus.deploy.runtime.probing import ProofReference, UnitProof
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Score, score_by
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.io.strict import read_json
from circinus.pipelines.model.payload import Payload


def equal(output: Payload, expected: Payload) -> float:
    """Return 1 for an output that is what was expected, else 0: the metric where none is named."""
    return float(output == expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProbes:
    """What units are asked, and what their answers are worth."""

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
    """Return the mean score of an endpoint, asked one probe after the other, until one fails.

    The metric runs in another thread. InvalidInput unless the URL is of HTTP or HTTPS.
    """
    scores = []
    async with opened_endpoint(url, timeout_s=probes.timeout_s) as endpoint:
        for number, example in enumerate(probes.examples, 1):
            body = json.dumps(example.input, ensure_ascii=False).encode()
            try:
                output = cast("Payload", read_json(await endpoint.answer(body), "answer"))
                told = (probes.score, output, example.expected)
                scores.append(await asyncio.to_thread(score_by, *told))
            except (EndpointFailed, InvalidInput, OperatorFailed) as error:
                return EndpointScore(
                    score=None,
                    failed=f"probe {number}: {error}",
                    is_away=isinstance(error, EndpointAway),
                )
    return EndpointScore(score=sum(scores) / len(scores))


async def endpoint_proofs(urls: Mapping[str, str], probes: EndpointProbes) -> dict[str, UnitProof]:
    """Return unit -> what the probes say of it, of units by URL, asked all at the same time.

    The reference is the first, in their order, of which no probe failed.
    """
    found = await asyncio.gather(*(endpoint_score(url, probes) for url in urls.values()))
    reference = ProofReference(tolerance=probes.tolerance)
    scored = dict(zip(urls, found, strict=True))
    known = {
        unit: reference.proof(unit, each.score, each.failed)
        for unit, each in sorted(scored.items(), key=lambda told: told[1].score is None)
    }
    return {unit: known[unit] for unit in urls}
