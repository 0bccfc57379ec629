"""How long something may take, on whatever machine and however busy it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.api.holding import LONGEST_HOLD_S

MOST_S = 0.1
"""Processor time of refusing anything, beyond start-up."""

_TEXT = "[" + ",".join(["[1]"] * 50_000) + "]"
_TIMES = 4
_REFERENCE_S = 0.006  # of `_work` on the machine that the bounds were stated on
_SLACK = 1.5  # caches that others use, too


def assert_in_time(name: str, measured: Callable[[], tuple[float, float]]) -> None:
    """Measure for how long something holds a loop, and what it spends; both have a bound.

    What a busy machine adds differs from run to run; what is slow is slow each time. Likewise a
    machine that is slower than the one that the bounds are for is slower at everything.
    """
    held, spent = measured()
    for _ in range(_TIMES - 1):
        allowed = _SLACK
        if held > LONGEST_HOLD_S or spent > MOST_S:
            allowed *= max(1.0, _work() / _REFERENCE_S)
        if held <= LONGEST_HOLD_S * allowed and spent <= MOST_S * allowed:
            break
        held, spent = map(min, (held, spent), measured())
    print(  # noqa: T201 - for whoever asks with -s
        f"{held * 1e3:6.1f} ms held, {spent * 1e3:6.1f} ms spent: {name}"
    )
    assert held <= LONGEST_HOLD_S * allowed
    assert spent <= MOST_S * allowed


def _work() -> float:
    took = []
    for _ in range(3):
        began = time.process_time()
        tree = json.loads(_TEXT)
        sum(len(part) for part in tree)
        took.append(time.process_time() - began)
        del tree
    return min(took)
