"""Whether units may take traffic: by probes of their pods (adaptive orchestration, 4.5.1).

Probes go to a unit's Service, in a thread of their own, so that moving traffic never waits for
them. Their verdict is of the template of the pods that were ready then. It holds as long as one of
these is: pods that come back after all were gone are verified anew, and so is a rollout, once the
last pod from before it is gone.

All are held against the first unit that has a score: of units that are checked together it is the
first in the route, and the others wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from threading import Lock, Thread

from circinus.deploy.routes.probing import (
    EndpointProbes,
    EndpointScore,
    ProofReference,
    UnitProof,
    endpoint_score,
)
from circinus.pipelines.clock import Clock

_AGAIN_S = 1.0  # after which a unit that was not reached is checked again


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdicts:
    """The verdicts of probes, by unit."""

    agree: frozenset[str] = frozenset()  # they may take traffic
    refused: frozenset[str] = frozenset()
    # why a unit whose pods are ready may not take traffic: it is refused, or not verified yet
    words: Mapping[str, str] = field(default_factory=dict)
    again_s: float = inf  # when to look again although nothing happens

    @property
    def by_unit(self) -> dict[str, bool]:
        """Return unit -> whether its outputs agree, of those that are verified."""
        return dict.fromkeys(self.agree, True) | dict.fromkeys(self.refused, False)


@dataclass(slots=True, kw_only=True, eq=False)
class _Check:
    templates: frozenset[str]
    words: str = "its outputs are not verified yet"
    thread: Thread | None = None
    score: EndpointScore | None = None  # None: probes are under way, or it was not reached
    proof: UnitProof | None = None
    again_s: float = inf


@dataclass(slots=True, kw_only=True, eq=False)
class UnitVerifier:
    """Verifies units over HTTP. Threads may share it."""

    urls: Mapping[str, str]  # of the units, in the route's order
    probes: EndpointProbes
    clock: Clock
    on_change: Callable[[], object]  # is called, from any thread, as more is known
    _lock: Lock = field(default_factory=Lock, init=False)
    _reference: ProofReference = field(init=False)
    _checks: dict[str, _Check] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reference = ProofReference(tolerance=self.probes.tolerance)

    def verify(self, templates: Mapping[str, frozenset[str]]) -> UnitVerdicts:
        """Begin to verify what has to be, and return the verdicts so far; does not block.

        `templates` are those of each unit's ready pods.
        """
        now = self.clock.now()
        with self._lock:
            for name in self.urls:
                there, check = (
                    templates.get(name, frozenset()),
                    self._checks.get(name),
                )
                if check is not None and not check.templates & there:
                    del self._checks[name]
                    check = None
                if there and (check is None or now >= check.again_s):
                    self._begin(name, there, check)
            self._settle()
            return self._verdicts()

    def wait(self) -> None:
        """Wait until probes that are under way have ended."""
        with self._lock:
            threads = [check.thread for check in self._checks.values() if check.thread is not None]
        for thread in threads:
            thread.join()

    def _begin(self, name: str, templates: frozenset[str], before: _Check | None) -> None:
        check = self._checks[name] = _Check(templates=templates)
        if before is not None:
            check.words = before.words
        check.thread = Thread(target=self._probe, args=[name, check], name=name, daemon=True)
        check.thread.start()

    def _probe(self, name: str, check: _Check) -> None:
        score = EndpointScore(score=None, failed="probes were broken off", is_away=True)
        try:
            score = asyncio.run(endpoint_score(self.urls[name], self.probes))
        finally:  # whatever its outcome, no unit waits for it in vain
            with self._lock:
                if score.is_away:
                    check.words = f"its outputs are not verified yet: {score.failed}"
                    check.again_s = self.clock.now() + _AGAIN_S
                else:
                    check.score = score
                self._settle()
            self.on_change()

    def _settle(self) -> None:
        """Judge what has a score; while there is no reference, an earlier unit may become it."""
        for name in self.urls:
            check = self._checks.get(name)
            if check is None or check.proof is not None:
                continue
            if check.score is not None:
                score = check.score
                check.proof = self._reference.proof(name, score.score, score.failed)
            elif check.again_s == inf and not self._reference.is_known:
                return

    def _verdicts(self) -> UnitVerdicts:
        proofs = {name: a.proof for name, a in self._checks.items() if a.proof is not None}
        refused = {name: proof for name, proof in proofs.items() if not proof.agrees}
        unknown = {name: a.words for name, a in self._checks.items() if a.proof is None}
        refusals = {name: proof.refusal for name, proof in refused.items()}
        return UnitVerdicts(
            agree=frozenset(proofs.keys() - refused.keys()),
            refused=frozenset(refused),
            words=refusals | unknown,
            again_s=min(
                (check.again_s for check in self._checks.values()),
                default=inf,
            ),
        )
