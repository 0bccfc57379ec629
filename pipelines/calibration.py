"""What `circinus calibrate` measured of a tier: how fast each class of operators is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from pipelines import checks
from pipelines.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSpeed:
    """The speed factor of a tier for one class of operators.

    Attributes:
        factor: How many times as fast as profiled on the reference machine, `> 0`.
        low: The least that parts of the repetitions gave, `> 0`.
        high: The largest of those.
        repetitions: How often it was measured, `>= 1`.
    """

    factor: float
    low: float
    high: float
    repetitions: int

    def __post_init__(self) -> None:
        checks.positive("speed.low", self.low)
        ordered = self.low <= self.factor <= self.high
        spread = (self.low, self.factor, self.high)
        checks.require(ordered, "speed", "must have low <= factor <= high", spread)
        checks.require(
            self.repetitions >= 1, "speed.repetitions", "must be >= 1", self.repetitions
        )

    def times(self, ratio: float) -> ClassSpeed:
        """Give the speed of the same operators on a machine `ratio` times as fast."""
        return replace(
            self, factor=self.factor * ratio, low=self.low * ratio, high=self.high * ratio
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Speed factors of a tier, measured on its workers.

    Attributes:
        date: When, as `YYYY-MM-DD`.
        share: Of a machine that the workers had, in (0, 1].
        tier_factor: The tier's own speed factor then, `> 0`: a tier that is set to be twice as
            fast afterwards is so for every class.
        speeds: Class of operators -> its speed factor.
    """

    date: str
    share: float
    tier_factor: float
    speeds: Mapping[str, ClassSpeed]

    def __post_init__(self) -> None:
        try:
            date.fromisoformat(self.date)
        except ValueError as error:
            raise InvalidInput.of("calibration.date", "must be YYYY-MM-DD", self.date) from error
        checks.share("calibration.share", self.share)
        checks.positive("calibration.tier_factor", self.tier_factor)

    def at(self, tier_factor: float) -> Calibration:
        """Give what would have been measured of a tier with another factor of its own."""
        ratio = tier_factor / self.tier_factor
        speeds = {name: speed.times(ratio) for name, speed in self.speeds.items()}
        return replace(self, tier_factor=tier_factor, speeds=speeds)
