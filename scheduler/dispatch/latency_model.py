"""How long a request will take on an instance, learnt from those that were served.

| symbol | meaning |
| --- | --- |
| x, y | size of a request in any unit (1 when sizes are unknown); its seconds |
| w | weight of an observation: gamma for each that came after it |
| n, mx, my, sxx, sxy | sum of w; weighted means of x and y; weighted sums of squares about them |
| p | the plan's prediction, which counts as k gamma^observations observations of size mx |

    mean at mx   = (k p + n my) / (k + n)
    slope        = max(0, sxy / sxx) * n / (k + n)
    prediction   = mean + slope (x - mx), at least 0

Latency is linear in the batch size (Kairos 5.1, remarks: correlation above 0.99) and
a larger request never takes less. Old observations fade, so a machine that has
become slower is noticed; the plan's prediction fades with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from pipelines import checks
from scheduler.dispatch.policy import FloatArray

_SPREAD = 1e-9  # relative; sizes closer than this are all alike and say nothing of a slope


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLine:
    """What is known of one instance. A value: `observed` gives the next one.

    Attributes:
        prior_s: Seconds that the plan predicts, `>= 0`.
        prior_weight: k, in observations, `> 0`. 2: two requests weigh as much as the plan.
        memory: gamma, in (0, 1]. 0.98: an observation counts half after 34 others.
        count: Observations so far.
    """

    prior_s: float
    prior_weight: float = 2.0
    memory: float = 0.98
    count: int = 0
    n: float = 0.0
    mx: float = 0.0
    my: float = 0.0
    sxx: float = 0.0
    sxy: float = 0.0

    def __post_init__(self) -> None:
        checks.non_negative("prior_s", self.prior_s)
        checks.positive("prior_weight", self.prior_weight)
        checks.share("memory", self.memory)

    def observed(self, seconds: float, size: float = 1.0) -> LatencyLine:
        """Give what is known after one more request.

        Raises:
            InvalidInput: If `seconds` is not finite and `>= 0`, or `size` not finite.
        """
        checks.non_negative("seconds", seconds)
        checks.require(isfinite(size), "size", "must be finite", size)
        # Welford's update with fading weights.
        n = self.memory * self.n + 1.0
        dx = size - self.mx
        mx = self.mx + dx / n
        my = self.my + (seconds - self.my) / n
        return replace(
            self,
            count=self.count + 1,
            n=n,
            mx=mx,
            my=my,
            sxx=self.memory * self.sxx + dx * (size - mx),
            sxy=self.memory * self.sxy + dx * (seconds - my),
        )

    def predict(self, size: float = 1.0) -> float:
        """Give the seconds that a request of that size will take."""
        if self.count == 0:
            return self.prior_s
        k = self.prior_weight * self.memory**self.count
        mean = (k * self.prior_s + self.n * self.my) / (k + self.n)
        slope = 0.0
        if self.sxx > _SPREAD * self.n * self.mx**2:
            slope = max(0.0, self.sxy / self.sxx) * self.n / (k + self.n)
        return max(0.0, mean + slope * (size - self.mx))


@dataclass(slots=True)
class LatencyModel:
    """Predicted seconds per instance (or kind of instance), learnt online.

    Not safe to share between threads.

    Attributes:
        lines: What is known of each key so far.
    """

    lines: dict[str, LatencyLine] = field(default_factory=dict)

    @classmethod
    def of(cls, prior_s: Mapping[str, float]) -> LatencyModel:
        """Give a model that knows what the plan predicts for each key, in seconds."""
        return cls({key: LatencyLine(prior_s=seconds) for key, seconds in prior_s.items()})

    def observe(self, key: str, seconds: float, size: float = 1.0) -> None:
        """Learn from a request that was served.

        Raises:
            InvalidInput: If nothing was said of that key, or the seconds are not `>= 0`.
        """
        self.lines[key] = self._line(key).observed(seconds, size)

    def predict(self, sizes: Sequence[float], keys: Sequence[str]) -> FloatArray:  # (m, n)
        """Give the seconds of every request on every instance, for `DispatchPolicy`.

        Args:
            sizes: Of m requests.
            keys: Of n instances.

        Raises:
            InvalidInput: If nothing was said of a key.
        """
        lines = [self._line(key) for key in keys]
        seconds = [[line.predict(size) for line in lines] for size in sizes]
        return np.array(seconds, dtype=np.float64).reshape(len(sizes), len(keys))

    def _line(self, key: str) -> LatencyLine:
        rule = f"must be among {', '.join(self.lines) or '(none)'}"
        checks.require(key in self.lines, "instance", rule, key)
        return self.lines[key]
