"""The rows of the study of scheduling policies, put together by size and policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol


class GapRow(Protocol):
    """What is told of a row, see `studies.ilp_gap.Row`."""

    @property
    def queries(self) -> int: ...
    @property
    def plans(self) -> int: ...
    @property
    def tiers(self) -> int: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def policy(self) -> str: ...
    @property
    def objective(self) -> str: ...
    @property
    def served(self) -> int: ...
    @property
    def proven(self) -> bool: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def ratio(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows of one policy at one size.

    Attributes:
        policy: Name.
        queries: N.
        problems: How many.
        proven: For how many the bound is the optimum.
        mean: Of the ratios to the bound; NaN if one has none.
        worst: The lowest ratio of goodput, the highest of cost.
        served: Mean number of queries.
        seconds: Mean, of the machine's time.
        cpu_seconds: Mean, of the processor's, in the study's process.
    """

    policy: str
    queries: int
    problems: int
    proven: int
    mean: float
    worst: float
    served: float
    seconds: float
    cpu_seconds: float


def summary(rows: Sequence[GapRow]) -> list[Line]:
    """Give a line per size and policy, in the order of the rows."""
    lines = []
    for queries, policy in dict.fromkeys((r.queries, r.policy) for r in rows):
        of = [r for r in rows if (r.queries, r.policy) == (queries, policy)]
        worst = min if of[0].objective == "goodput" else max
        lines.append(
            Line(
                policy=policy,
                queries=queries,
                problems=len(of),
                proven=sum(r.proven for r in of),
                mean=fmean(r.ratio for r in of),
                worst=worst(r.ratio for r in of),
                served=fmean(r.served for r in of),
                seconds=fmean(r.seconds for r in of),
                cpu_seconds=fmean(r.cpu_seconds for r in of),
            )
        )
    return lines
