"""Since when a query has too much to do: told once it lasts, and over once it was calm again."""

from __future__ import annotations

from dataclasses import dataclass

from circinus.pipelines import checks


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadSettings:
    """What counts as too much, and how soon it is told."""

    # times the rate that its instances are for, `>= 1`: what replicas follow, too
    beyond: float = 1.25
    lasts_s: float = 3.0  # `>= 0`; less is a burst
    calm_s: float = 10.0  # without it, `>= 0`. As long as rates are counted over

    def __post_init__(self) -> None:
        checks.require(self.beyond >= 1, "beyond", "must be >= 1", self.beyond)
        checks.non_negative("lasts_s", self.lasts_s)
        checks.non_negative("calm_s", self.calm_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedOverload:
    """What is told of too much to do, and what may be told next."""

    told: str = ""  # why, in words; empty: it is told of none
    since: float | None = None  # since when what is not told yet lasts; None: it does not
    calm_since: float | None = None  # since when what is told is over; None: it is not

    def after(self, why: str, now: float, settings: OverloadSettings) -> FollowedOverload:
        """Return it after a look at a moment, which found this; empty: nothing."""
        if not why:
            calm = now if self.calm_since is None else self.calm_since
            if not self.told or now - calm >= settings.calm_s:
                return FollowedOverload()
            return FollowedOverload(told=self.told, calm_since=calm)
        since = now if self.since is None else self.since
        if self.told or now - since >= settings.lasts_s:
            return FollowedOverload(told=why)
        return FollowedOverload(since=since)
