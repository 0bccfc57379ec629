"""The rate of a dispatcher that knows every request beforehand (ORCL; Kairos, section 7).

Requests are sorted by size; there is no waiting. A base instance takes the largest that is
left, an auxiliary one the smallest, as long as it meets the QoS there. Not a policy: it needs
the future.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from scheduler.dispatch.policy import FloatArray, IntArray


def oracle_rate(
    size: IntArray,  # (N,)
    service_s: FloatArray,  # (N, n)
    kind: IntArray,  # (n,)
    qos_s: float,
) -> float:
    """Give requests per second until all are served; 0 if some cannot be served in time.

    Args:
        size: Of each request.
        service_s: Seconds of each on each instance.
        kind: Of each instance; 0 is the base type.
        qos_s: T.
    """
    order = np.argsort(size, kind="stable")
    seconds = service_s[order].tolist()
    free = [(0.0, j) for j in range(len(kind))]
    heapify(free)
    first, last, end = 0, len(seconds) - 1, 0.0
    while first <= last and free:
        at, j = heappop(free)
        place = last if kind[j] == 0 else first
        taken = seconds[place][j]
        if taken > qos_s:
            continue  # larger ones fit even less: this instance is done
        last, first = (last - 1, first) if kind[j] == 0 else (last, first + 1)
        end = max(end, at + taken)
        heappush(free, (at + taken, j))
    return len(seconds) / end if first > last and end > 0 else 0.0
