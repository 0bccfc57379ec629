"""Dispatch states for tests."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from hypothesis import strategies as st

from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchState, Fleet


def state(
    predicted: Sequence[Sequence[float]],
    *,
    waited: Sequence[float] | float = 0.0,
    qos: Sequence[float] | float = inf,
    size: Sequence[float] | float = 1.0,
    planned: Sequence[int] | int = UNPLANNED,
    busy: Sequence[float] | float = 0.0,
    idle: Sequence[bool] | bool = True,
    kind: Sequence[int] | int = 0,
    coefficient: Sequence[float] | float = 1.0,
    price: Sequence[float] | float = 1.0,
    instances: int | None = None,
) -> DispatchState:
    """A number stands for as many as there are requests or instances."""
    m = len(predicted)
    n = instances if instances is not None else len(predicted[0])
    return DispatchState(
        np.array(np.broadcast_to(waited, m), dtype=np.float64),
        np.array(np.broadcast_to(qos, m), dtype=np.float64),
        np.array(np.broadcast_to(size, m), dtype=np.float64),
        np.array(np.broadcast_to(planned, m), dtype=np.int64),
        np.array(predicted, dtype=np.float64).reshape(m, n),
        np.array(np.broadcast_to(busy, n), dtype=np.float64),
        np.array(np.broadcast_to(idle, n), dtype=np.bool_),
        Fleet(
            np.array(np.broadcast_to(kind, n), dtype=np.int64),
            np.array(np.broadcast_to(coefficient, n), dtype=np.float64),
            np.array(np.broadcast_to(price, n), dtype=np.float64),
        ),
    )


@st.composite
def states(draw: st.DrawFn) -> DispatchState:
    """Any number of requests and instances, deadlines or none, pairs that cannot be."""
    m, n = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    seconds = st.one_of(st.floats(0, 1e4), st.sampled_from([0.0, 1.0]))

    def many(values: st.SearchStrategy[float], count: int) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    return state(
        np.array(many(st.one_of(seconds, st.just(inf)), m * n)).reshape(m, n).tolist(),
        waited=many(seconds, m),
        qos=many(st.one_of(st.just(inf), st.floats(1e-6, 1e4)), m),
        size=many(st.floats(0, 1000), m),
        planned=[int(j) for j in many(st.sampled_from([UNPLANNED, 0, 1, 8]), m)],
        busy=many(seconds, n),
        idle=[bool(idle) for idle in many(st.sampled_from([0.0, 1.0]), n)],
        kind=[int(kind) for kind in many(st.sampled_from([0, 1, 2]), n)],
        coefficient=many(st.floats(0.01, 1.0), n),
        price=many(st.floats(0, 2.0), n),
        instances=n,
    )
