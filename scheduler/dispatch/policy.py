"""The seam between whoever has requests to start and how each finds its instance.

| symbol | meaning |
| --- | --- |
| m, n | waiting requests, in the order in which they began to wait; instances |

A state is made of arrays, because it is built anew at every arrival and completion: an
object per request would cost more than the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DISPATCH_POLICIES = (
    "plan_ahead",
    "kairos",
    "fcfs",
    "fcfs_reject",
    "drs",
    "clockwork",
    "clockwork_reject",
)
"""What settings and studies call them, the default first; see `scheduler.dispatch.policies`."""

UNPLANNED = -1
"""In `DispatchState.planned`: no instance is foreseen for the request."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What stays the same of n instances. Instances are listed in order of preference."""

    # number of each instance's type; 0 is the base type, which serves every request in time
    # (Kairos, section 7)
    kind: IntArray  # (n,)
    # what a second of each is worth relative to the base type, in (0, 1], see
    # `heterogeneity`
    coefficient: FloatArray  # (n,)
    # the same by the dual prices of the throughput bound, `>= 0`, see
    # `scheduler.pool.throughput_bounds`
    price: FloatArray  # (n,)

    def __post_init__(self) -> None:
        n = len(self.kind)
        for name, values in (("coefficient", self.coefficient), ("price", self.price)):
            checks.require(values.shape == (n,), name, f"must have shape ({n},)", values.shape)
        in_range = bool(((self.coefficient > 0) & (self.coefficient <= 1)).all())
        checks.require(in_range, "coefficient", "must be in (0, 1]", self.coefficient)
        checks.require(bool((self.price >= 0).all()), "price", "must be >= 0", self.price)
        checks.require(bool((self.kind >= 0).all()), "kind", "must be >= 0", self.kind)

    @classmethod
    def alike(cls, count: int) -> Fleet:
        """Return the fleet of so many instances of one type."""
        return cls(np.zeros(count, dtype=np.int64), np.ones(count), np.ones(count))

    def __len__(self) -> int:
        """Return n."""
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class DispatchState:
    """Who waits, what instances do; InvalidInput if shapes or numbers (NaN, range) are wrong."""

    waited_s: FloatArray  # (m,); seconds since each request arrived, `>= 0`
    # deviates: own-deadlines
    # each should be answered within so many seconds of its arrival, `> 0`; infinite: whenever
    qos_s: FloatArray  # (m,)
    size: FloatArray  # (m,); of each request, in any unit (its batch); 1 where sizes are unknown
    # what the decision before this one foresaw: an instance's place, or UNPLANNED
    planned: IntArray  # (m,)
    # seconds of each request on each instance once it has started, `>= 0`; infinite where an
    # instance cannot serve a request
    predicted_s: FloatArray  # (m, n)
    busy_s: FloatArray  # (n,); predicted seconds until each instance is free, `>= 0`
    # whether a request can start on it now. Not the same as `busy_s == 0`: a request that takes
    # longer than predicted keeps an instance busy with no seconds left
    idle: BoolArray  # (n,)
    fleet: Fleet
    # `Decision.dual` of the decision before this one; None: there was none, or it had none
    dual: FloatArray | None = None  # (n,)
    largest: float = 0.0  # size of the largest request until now; 0: none but those that wait

    def __post_init__(self) -> None:
        m, n = self.waited_s.shape[0], len(self.fleet)
        shape = self.predicted_s.shape
        if shape != (m, n):
            raise InvalidInput.of("predicted_s", f"must have shape {(m, n)}", shape)
        if not (self.qos_s.shape == self.size.shape == self.planned.shape == (m,)):
            raise InvalidInput.of("qos_s", f"must have shape ({m},)", self.qos_s.shape)
        if not (self.busy_s.shape == self.idle.shape == (n,)):
            raise InvalidInput.of("busy_s", f"must have shape ({n},)", self.busy_s.shape)
        if self.dual is not None and self.dual.shape != (n,):
            raise InvalidInput.of("dual", f"must have shape ({n},)", self.dual.shape)
        # Written out: a state is built for every event, and the fast path must stay fast.
        if not self.predicted_s.min(initial=inf) >= 0:
            raise InvalidInput.of("predicted_s", "must be >= 0 everywhere", "less")
        for name, values in (("waited_s", self.waited_s), ("busy_s", self.busy_s)):
            if not values.min(initial=inf) >= 0:
                raise InvalidInput.of(name, "must be >= 0", values)
        if not self.qos_s.min(initial=inf) > 0:
            raise InvalidInput.of("qos_s", "must be > 0", self.qos_s)


class Start(NamedTuple):
    """A request starts on an instance now; places in the state."""

    request: int
    instance: int


class Decision(NamedTuple):
    """The decision of a policy."""

    starts: Sequence[Start] = ()
    rejected: Sequence[int] = ()  # requests that are turned away for good
    # what is foreseen for requests that go on waiting; the next state holds it for the policy
    planned: Sequence[Start] = ()
    # of each instance: where the next decision begins, see `scheduler.dispatch.matching`; zeros,
    # or empty, of a policy that begins anew each time
    dual: Sequence[float] = ()


class DispatchPolicy(Protocol):
    """Decides which waiting requests start now, and where.

    A pure function of the state: the live dispatcher and the simulator call the same object.
    It is called at every arrival and completion while requests wait; nothing but starts and
    rejections is final. A start names an idle instance that can serve the request, and each
    instance and each request at most once. A request that is neither started nor rejected goes
    on waiting, and unless the policy `rejects`, every request that some instance can serve
    starts in the end. Safe to share between threads.
    """

    @property
    def plans_ahead(self) -> bool:
        """Whether it is to be called also when no instance is idle."""

    @property
    def rejects(self) -> bool:
        """Whether it turns requests away."""

    @property
    def sheds(self) -> bool:
        """Whether whoever dispatches should turn away what cannot be in time any more.

        Of requests whose clients do not want a late answer. Not the policy's own doing: it is
        asked of the live dispatcher, before a request costs anything.
        """

    @property
    def level(self) -> float | None:
        """Quantile of the seconds that it takes as predictions; None: means."""

    def decide(self, state: DispatchState) -> Decision:
        """Return what starts now."""


def heterogeneity(largest_request_s: FloatArray) -> FloatArray:  # (n,), both
    """Return the coefficient C of each kind of instance, in (0, 1] (Kairos, definition 1).

    Seconds of the largest request on the fastest kind, over those on each. InvalidInput if an
    entry is not finite and `> 0`.
    """
    good = bool(((largest_request_s > 0) & np.isfinite(largest_request_s)).all())
    checks.require(good, "largest_request_s", "must be finite and > 0", largest_request_s)
    # deviates: coefficient-by-the-example
    return np.asarray(largest_request_s.min(initial=inf) / largest_request_s)
