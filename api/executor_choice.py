"""How operators are run while a query is planned, as settings and options name it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput


class ExecutorKind(StrEnum):
    """What runs operators."""

    IN_PROCESS = "in-process"
    """The process that plans."""
    POOL = "pool"
    """Worker processes of this computer."""
    WORKER = "worker"
    """Deployed gRPC workers of a tier: `worker:TIER`."""
    RAY = "ray"
    """Actors of a Ray cluster: `ray` for one of this computer's own, or `ray:ADDRESS`."""


FORMS = "in-process, pool, worker:TIER, ray or ray:ADDRESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorChoice:
    """What runs operators, and how.

    Attributes:
        kind: What.
        detail: The tier or the address; empty: none.
        workers: How many, `>= 1`: so many inputs are measured at once. One in-process.
        timeout_s: Most seconds of one call, `> 0`; not in the process that plans.
        memory_bytes: Most memory of a worker beyond the loaded pipeline, `> 0`.
    """

    kind: ExecutorKind = ExecutorKind.IN_PROCESS
    detail: str = ""
    workers: int = 1
    timeout_s: float = 60.0
    memory_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        checks.require(self.workers >= 1, "executor.workers", "must be >= 1", self.workers)
        checks.positive("executor.timeout_s", self.timeout_s)
        checks.positive("executor.memory_bytes", self.memory_bytes)
        alone = self.kind is ExecutorKind.IN_PROCESS and self.workers > 1
        checks.require(not alone, "executor.workers", "must be 1 in-process", self.workers)
        needed = self.kind is ExecutorKind.WORKER
        takes = needed or self.kind is ExecutorKind.RAY
        fits = (takes or not self.detail) and (bool(self.detail) or not needed)
        checks.require(fits, "executor", f"must be {FORMS}", f"{self.kind}:{self.detail}")


def executor_choice(text: str, **how: int | float) -> ExecutorChoice:
    """Give the choice that a text names.

    Args:
        text: `in-process`, `pool`, `worker:TIER`, `ray` or `ray:ADDRESS`.
        how: Further fields.

    Raises:
        InvalidInput: If it names none.
    """
    kind, _, detail = text.partition(":")
    if kind not in set(ExecutorKind):
        raise InvalidInput.of("executor", f"must be {FORMS}", text)
    return ExecutorChoice(kind=ExecutorKind(kind), detail=detail, **how)  # type: ignore[arg-type]  # checked there
