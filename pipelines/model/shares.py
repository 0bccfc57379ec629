"""How workers share the GPUs of a machine, as the plug-in of its nodes can grant them.

| kind | what a worker gets | what holds it to that |
| --- | --- | --- |
| whole | whole GPUs, one or more | no other process has them |
| mig | one MIG device: a process sees no second one | the hardware |
| mps | one part of one GPU: its threads and its memory | the MPS daemon of the node |
| time-sliced | one turn of one GPU; memory is not divided | nothing but the worker itself |

NVIDIA's plug-in refuses a second part with MPS, and promises nothing more for a second turn. So,
but for whole GPUs, a worker has one place, and a machine of N places has one share that fits: the
largest step of which exactly N are a machine. Of a smaller one the schedule would put more workers
there than there are places, of a larger one none would get what it was promised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from circinus.pipelines import checks, ranges

# deviates: share-grid
SHARE_STEP = 0.05
"""From one step to a whole machine."""
FULL_STEPS = round(1 / SHARE_STEP)
"""A whole machine in steps."""


_ROUNDING = 1e-6  # of a step: shares are sums and products of floats
_NVIDIA = "nvidia.com/"
_PROFILE = re.compile(r"[1-9]g\.[0-9]+gb([+-][a-z]+(\.[a-z]+)*)?")
_RESOURCE = re.compile(
    r"(?=.{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)


class GpuSharing(StrEnum):
    """How workers share GPUs."""

    WHOLE = "whole"
    MIG = "mig"
    TIME_SLICED = "time-sliced"
    MPS = "mps"


_DIVIDED = (GpuSharing.TIME_SLICED, GpuSharing.MPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of one machine."""

    kind: GpuSharing  # how workers share them
    # how many there are; with MIG, how many of its devices
    count: Annotated[int, ranges.GPUS] = 1
    # of each of them: `replicas` of the plug-in, `>= 2`; 1 with whole and mig
    parts: Annotated[int, ranges.GPU_PARTS] = 1
    profile: str | None = None  # of MIG devices, such as `1g.10gb`; None: not stated, or not MIG
    # what nodes offer them as; made up from kind and profile where it is left out
    resource: str = ""

    def __post_init__(self) -> None:
        checks.at_least("gpus.count", self.count, 1)
        if self.kind in _DIVIDED:
            rule = f"must be >= 2 with {self.kind}, as the plug-in's replicas"
            checks.require(self.parts >= 2, "gpus.parts", rule, self.parts)
        else:
            rule = f"must be left out with {self.kind}: nothing is divided further"
            checks.require(self.parts == 1, "gpus.parts", rule, self.parts)
        self._check_profile()
        if not self.resource:
            object.__setattr__(self, "resource", self._usual_resource())
        self._check_resource()
        fitting = [n for n in range(1, FULL_STEPS + 1) if _largest(n)]
        rule = (
            f"must be one of {', '.join(map(str, fitting))} places with {self.kind}, "
            f"so that a place is a share in steps of {SHARE_STEP:g}"
        )
        named = "gpus.count x gpus.parts" if self.kind in _DIVIDED else "gpus.count"
        checks.require(bool(self.steps), named, rule, self.places)

    @property
    def places(self) -> int:
        """How many workers a machine holds at most."""
        return self.count * self.parts

    @property
    def steps(self) -> tuple[int, ...]:
        """The shares of a machine that a worker may have, in steps of `SHARE_STEP`, ascending."""
        if self.kind is GpuSharing.WHOLE:
            return tuple(k for k in range(1, FULL_STEPS + 1) if k * self.count % FULL_STEPS == 0)
        return _largest(self.places)

    @property
    def enforced(self) -> bool:
        """Whether a worker gets no more than its share of them, whatever it does."""
        return self.kind is not GpuSharing.TIME_SLICED

    def grants(self, share: float) -> bool:
        """Return whether a worker may have that share of a machine."""
        step = share / SHARE_STEP
        return round(step) in self.steps and abs(step - round(step)) <= _ROUNDING

    def in_words(self) -> str:
        """Return what they are, such as `2 GPUs in 5 parts each (mps)`."""
        each = f" in {self.parts} parts each" if self.kind in _DIVIDED else ""
        named = "MIG devices" if self.kind is GpuSharing.MIG else "GPUs"
        return f"{self.count} {named if self.count > 1 else named[:-1]}{each} ({self.kind})"

    def _check_profile(self) -> None:
        if self.kind is not GpuSharing.MIG:
            rule = f"must be left out with {self.kind}"
            checks.require(self.profile is None, "gpus.profile", rule, self.profile)
        elif self.profile is None:
            rule = "must be given with mig, or the resource that nodes offer"
            checks.require(bool(self.resource), "gpus.profile", rule, None)
        else:
            # Others have fewer compute than GPU slices: the plug-in offers none of them.
            rule = "must be such as 1g.10gb or 1g.10gb+me"
            good = _PROFILE.fullmatch(self.profile) is not None
            checks.require(good, "gpus.profile", rule, self.profile)

    def _check_resource(self) -> None:
        rule = "must be such as nvidia.com/gpu"
        good = _RESOURCE.fullmatch(self.resource) is not None
        own = re.match(r"([^/]*\.)?kubernetes\.io/|requests\.", self.resource)
        checks.require(good and not own, "gpus.resource", rule, self.resource)
        rule = "must not be MIG devices with mps: the plug-in shares none of them so"
        bad = self.kind is GpuSharing.MPS and self.resource.startswith(f"{_NVIDIA}mig-")
        checks.require(not bad, "gpus.resource", rule, self.resource)

    def _usual_resource(self) -> str:
        if self.kind is GpuSharing.MIG:  # with the plug-in's strategy `mixed`
            return f"{_NVIDIA}mig-{(self.profile or '').replace('+', '.')}"
        # Renamed (`renameByDefault`), no worker gets a whole GPU where it was to have a part.
        return f"{_NVIDIA}gpu.shared" if self.kind in _DIVIDED else f"{_NVIDIA}gpu"


def _largest(places: int) -> tuple[int, ...]:
    """Return the one share that fits a place of so many, in steps; none: no step does."""
    step = FULL_STEPS // places
    return (step,) if step and FULL_STEPS // step == places else ()
