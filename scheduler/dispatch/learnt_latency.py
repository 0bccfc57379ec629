"""Seconds by size, learnt from served requests: first a line, then a table with quantiles.

| symbol | meaning |
| --- | --- |
| x, y | size of a request in any unit (1 when sizes are unknown); its seconds |
| w | weight of an observation: gamma for each later one |
| n, mx, my, sxx, sxy | sum of w; weighted means of x and y; weighted sums of squares about them |
| p | the plan's prediction, which counts as k gamma^observations observations of size mx |
| b | bucket of sizes: those in [2^(b / steps), 2^((b + 1) / steps)) |
| bx, by | weighted means of sizes and seconds of a bucket |
| r | log(y / prediction), of every observation; fading mean and mean square |
| o | octave of the prediction: those between 2^o and 2^(o + 1) seconds |

The line:

    mean at mx   = (k p + n my) / (k + n)
    slope        = max(0, sxy / sxx) * n / (k + n)
    prediction   = mean + slope (x - mx), at least 0
                 = mean min(1, x / mx)     while only one size was observed

Latency is linear in the batch size (Kairos 5.1, remarks: correlation above 0.99) and
a larger request never takes less. One size predicts the others by the best case that it
allows: a type that is thought too slow for a size would never be tried. Old observations fade, so
a machine that has become slower is noticed; the plan's prediction fades with them.

The table: linear in size from the first few requests, then by the size's own bucket,

    prediction   = by + slope (x - bx), at least 0

Buckets are parts of an octave, as sizes come in any unit: tokens by the thousand, or seconds below
one. Single runs are taken as log-normal about the prediction with the spread of r in its
octave, so a quantile needs hardly more observations than a mean, and the milliseconds of noise
that every call has do not make long requests look as uncertain as short ones. A size beyond two
deviations of those observed shows nothing of the spread before its bucket is known: the line was
wrong there, and no run was slow. A two-sided cumulative sum of r detects drift: when machines
have become slower or faster for good, the estimates are scaled to the latest observation, and
weigh no more than one observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import lru_cache
from math import exp, floor, isfinite, log, log2, sqrt
from statistics import NormalDist
from typing import cast

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

_SPREAD = 1e-9  # relative; sizes closer than this are all alike and show no slope
_LEAST_S = 1e-9  # logarithms of nothing
_LEAST_SIZE = 1e-9  # likewise
_ALIKE = 2.0  # deviations of the observed sizes
_SLACK, _ALARM, _MOST = 0.5, 24.0, 2.0  # of the cumulative sum, in standard deviations; what
# one observation adds is bounded: a machine that stalls once makes everything late that it has in
# hand, a dozen requests in a row, which is no drift. A shift by two deviations shows after 17.
_ERROR_MEMORY = 0.99
_LEAST_SPREAD = 0.05  # of r: shifts by less than twice that are left to fading memory


# deviates: latency-line-prior
@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLine:
    """Latency of one instance as learnt. A value: `observed` returns the next one."""

    prior_s: float  # seconds that the plan predicts, `>= 0`
    # k, in observations, `> 0`. 2: two requests weigh as much as the plan
    prior_weight: float = 2.0
    memory: float = 0.98  # gamma, in (0, 1]. 0.98: an observation counts half after 34 others
    count: int = 0  # observations so far
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
        """Return what is known after one more request.

        InvalidInput if `seconds` is not finite and `>= 0`, or `size` not finite.
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
        """Return the seconds that a request of that size will take."""
        if self.count == 0:
            return self.prior_s
        k = self.prior_weight * self.memory**self.count
        mean = (k * self.prior_s + self.n * self.my) / (k + self.n)
        if self._knows_one_size:
            return mean * min(1.0, max(size, 0.0) / self.mx) if self.mx > 0 else mean
        return max(0.0, mean + self.slope * (size - self.mx))

    def scaled(self, factor: float) -> LatencyLine:
        """Return the line of seconds so many times as long, which weighs one observation."""
        weight = min(1.0, 1.0 / max(self.n, 1.0))
        return replace(
            self,
            prior_s=self.prior_s * factor,
            n=self.n * weight,
            my=self.my * factor,
            sxx=self.sxx * weight,
            sxy=self.sxy * weight * factor,
        )

    @property
    def _knows_one_size(self) -> bool:
        return self.sxx <= _SPREAD * self.n * self.mx**2

    @property
    def slope(self) -> float:
        """Return the seconds of one more unit of size, `>= 0`."""
        if self._knows_one_size:
            return 0.0
        k = self.prior_weight * self.memory**self.count
        return max(0.0, self.sxy / self.sxx) * self.n / (k + self.n)


# deviates: latency-buckets
@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """How a table learns."""

    steps: int = 10  # buckets per octave of sizes, `>= 1`. 10: sizes of one differ by 7 % at most
    enough: int = 3  # observations from which on a bucket is believed instead of the line, `>= 1`
    # weight of an observation after one more in the same bucket, in (0, 1]
    memory: float = 0.95

    def __post_init__(self) -> None:
        checks.at_least("steps", self.steps, 1)
        checks.at_least("enough", self.enough, 1)
        checks.share("memory", self.memory)


@dataclass(slots=True)
class _Bucket:
    count: int = 0
    weight: float = 0.0
    mean: float = 0.0
    size: float = 0.0


@dataclass(slots=True)
class _Errors:
    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, error: float) -> None:
        self.weight = _ERROR_MEMORY * self.weight + 1.0
        self.total = _ERROR_MEMORY * self.total + error
        self.squares = _ERROR_MEMORY * self.squares + error * error

    @property
    def spread(self) -> float:
        if self.weight < 2:
            return 0.0
        mean = self.total / self.weight
        return sqrt(max(self.squares / self.weight - mean**2, 0.0))


@dataclass(slots=True)
class LearntLatency:
    """Latency of one kind of instance as learnt. Not safe to share between threads."""

    line: LatencyLine  # seconds as a line of the size
    settings: TableSettings = TableSettings()
    drifts: int = 0  # number of times that what was learnt was scaled
    _buckets: dict[int, _Bucket] = field(default_factory=dict)
    _errors: _Errors = field(default_factory=_Errors)
    _octaves: dict[int, _Errors] = field(default_factory=dict)
    _up: float = 0.0
    _down: float = 0.0

    def predict(self, size: float = 1.0) -> float:
        """Return the mean seconds of a request of that size."""
        bucket = self._believed(size)
        if bucket is None:
            return self.line.predict(size)
        return max(0.0, bucket.mean + self.line.slope * (size - bucket.size))

    def quantile(self, level: float, size: float = 1.0) -> float:
        """Return the quantile of single requests' seconds; InvalidInput if not 0 < `level` < 1."""
        checks.open_probability("level", level)
        predicted = self.predict(size)
        # deviates: errors-pooled
        errors = self._octaves.get(_octave(predicted), self._errors)
        return predicted * exp(_normal_quantile(level) * errors.spread)

    @property
    def spread(self) -> float:
        """Return the standard deviation of r; 0 before two observations."""
        return self._errors.spread

    def observe(self, seconds: float, size: float = 1.0) -> None:
        """Learn from a request that was served.

        InvalidInput if `seconds` is not finite and `>= 0`, or `size` not finite.
        """
        predicted = self.predict(size)
        known = self.line.count >= self.settings.enough and self._is_alike(size)
        self.line = self.line.observed(seconds, size)
        if known:
            error = log(max(seconds, _LEAST_S) / max(predicted, _LEAST_S))
            self._note_error(error)
            self._octaves.setdefault(_octave(predicted), _Errors()).add(error)
        if max(self._up, self._down) > _ALARM:
            self._start_anew(seconds / max(predicted, _LEAST_S))
            return
        bucket = self._buckets.setdefault(self._place(size), _Bucket())
        bucket.count += 1
        bucket.weight = self.settings.memory * bucket.weight + 1.0
        bucket.mean += (seconds - bucket.mean) / bucket.weight
        bucket.size += (size - bucket.size) / bucket.weight

    def dump(self) -> dict[str, object]:
        """Return everything as JSON values, for `load` after a restart."""
        return {
            "line": asdict(self.line),
            "by_size": {str(b): list(astuple(k)) for b, k in self._buckets.items()},
            "errors": list(astuple(self._errors)),
            "octaves": {str(o): list(astuple(errors)) for o, errors in self._octaves.items()},
            "drift": [self._up, self._down],
            "drifts": self.drifts,
        }

    @classmethod
    def load(
        cls, dumped: Mapping[str, object], settings: TableSettings | None = None
    ) -> LearntLatency:
        """Return what was dumped; InvalidInput if it was not."""
        try:
            line = LatencyLine(**cast("dict[str, float]", dumped["line"]))  # type: ignore[arg-type] # count is an int
            known = cls(line, settings or TableSettings(), cast("int", dumped["drifts"]))
            # absent from dumps of older versions, whose buckets were ten sizes wide
            by_size = dumped.get("by_size", {})
            buckets = cast("dict[str, tuple[int, float, float, float]]", by_size)
            known._buckets = {int(b): _Bucket(*values) for b, values in buckets.items()}
            known._errors = _Errors(*cast("list[float]", dumped["errors"]))
            octaves = cast("dict[str, list[float]]", dumped["octaves"])
            known._octaves = {int(o): _Errors(*values) for o, values in octaves.items()}
            known._up, known._down = cast("list[float]", dumped["drift"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            rule = "must be what `dump` gave"
            raise InvalidInput.of("dumped", rule, dict(dumped)) from error
        return known

    def _place(self, size: float) -> int:
        return floor(self.settings.steps * log2(max(size, _LEAST_SIZE)))

    def _believed(self, size: float) -> _Bucket | None:
        bucket = self._buckets.get(self._place(size))
        return bucket if bucket is not None and bucket.count >= self.settings.enough else None

    def _is_alike(self, size: float) -> bool:
        line = self.line
        near = abs(size - line.mx) <= _ALIKE * sqrt(line.sxx / max(line.n, 1.0))
        return near or self._believed(size) is not None

    def _note_error(self, error: float) -> None:
        known = self._errors
        if known.weight < 10:  # the spread itself is a guess
            known.add(error)
            return
        mean, scale = known.total / known.weight, max(known.spread, _LEAST_SPREAD)
        deviations = max(-_MOST, min((error - mean) / scale, _MOST))
        self._up = max(0.0, self._up + deviations - _SLACK)
        self._down = max(0.0, self._down - deviations - _SLACK)
        known.add(mean + scale * deviations)  # else a drift would soon look like noise

    def _start_anew(self, factor: float) -> None:
        """Keep how seconds go with size: forgetting that would make large requests late."""
        self.line = self.line.scaled(factor)
        for bucket in self._buckets.values():
            bucket.mean *= factor
            bucket.weight = min(bucket.weight, 1.0)
        self._errors = _Errors()
        self._up = self._down = 0.0
        self.drifts += 1


@lru_cache(maxsize=16)  # asked again and again for the same level, by every decision
def _normal_quantile(level: float) -> float:
    return NormalDist().inv_cdf(level)


def _octave(seconds: float) -> int:
    return floor(log2(max(seconds, _LEAST_S)))
