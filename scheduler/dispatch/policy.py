"""The seam between whoever has requests to start and how each finds its instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pipelines import checks

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """A request that has not started.

    Attributes:
        id: Unique among those waiting.
        waited_s: Seconds since it arrived, `>= 0`.
        qos_s: It should be answered within so many seconds of its arrival, `> 0`; None: whenever.
    """

    id: str
    waited_s: float
    qos_s: float | None = None

    def __post_init__(self) -> None:
        checks.non_negative(f"request {self.id}.waited_s", self.waited_s)
        if self.qos_s is not None:
            checks.positive(f"request {self.id}.qos_s", self.qos_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceState:
    """A running instance, which serves one request at a time.

    Attributes:
        id: Unique among the instances.
        busy_s: Predicted seconds until it is free, `>= 0`.
        idle: Whether a request can start on it now. Not the same as `busy_s == 0`: a request that
            takes longer than predicted keeps an instance busy with no seconds left.
        coefficient: What a second of it is worth, relative to the fastest kind, in (0, 1]; see
            `scheduler.dispatch.matching.heterogeneity`.
    """

    id: str
    busy_s: float = 0.0
    idle: bool = True
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        checks.non_negative(f"instance {self.id}.busy_s", self.busy_s)
        checks.share(f"instance {self.id}.coefficient", self.coefficient)


class Start(NamedTuple):
    """A request starts on an instance now."""

    request: str
    instance: str


class DispatchPolicy(Protocol):
    """Says which waiting requests start now, and where.

    A pure function of its arguments: the live dispatcher and a simulator call the same object.
    It is called again at the next arrival or completion; nothing but a start is final. A start
    names an idle instance, each instance and each request at most once. Requests that are not
    started go on waiting: a policy drops none. Safe to share between threads.
    """

    def assign(
        self,
        waiting: Sequence[WaitingRequest],
        instances: Sequence[InstanceState],
        predicted_s: FloatArray,  # (m, n)
    ) -> tuple[Start, ...]:
        """Give what starts now.

        Args:
            waiting: m requests, in any order.
            instances: n instances, idle and busy ones.
            predicted_s: Seconds of each request on each instance once it has started, `>= 0`;
                infinite where an instance cannot serve a request.

        Raises:
            InvalidInput: If `predicted_s` has another shape, or an entry that is NaN or < 0.
        """


def check_predictions(
    waiting: Sequence[WaitingRequest], instances: Sequence[InstanceState], predicted_s: FloatArray
) -> None:
    """Raise InvalidInput unless there is a prediction `>= 0` for every pair."""
    shape = (len(waiting), len(instances))
    checks.require(
        predicted_s.shape == shape, "predicted_s", f"must have shape {shape}", predicted_s.shape
    )
    good = bool((predicted_s >= 0).all())
    checks.require(good, "predicted_s", "must be >= 0 everywhere", predicted_s)
