"""Types of instance and what they cost, and the choice of a pool of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator

from circinus.api.schemas.base import Input, View
from circinus.api.schemas.numbers import bounds
from circinus.pipelines import checks, ranges
from circinus.scheduler.simulation.pool_choice import PoolChoice, PoolFigures


def _day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError as error:
        raise ValueError("must be YYYY-MM-DD") from error
    return value


_Name = Annotated[StrictStr, Field(min_length=1, max_length=100)]
_Day = Annotated[StrictStr, AfterValidator(_day)]
_Price = Annotated[float, bounds(ranges.PRICE_USD_PER_HOUR)]


class RentableType(Input):
    """Instances that are alike, as somebody rents them out."""

    name: _Name
    price_usd_per_hour: _Price
    memory_gb: Annotated[float | None, Field(gt=0)] = None
    accelerator: _Name | None = None


class InstanceCatalogue(Input):
    """A file of instance types."""

    date: _Day
    """When these were the prices."""
    source: _Name
    types: Annotated[list[RentableType], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        checks.unique("types", [each.name for each in self.types])
        return self


class PricedType(View):
    """What an instance of a type costs, and who says so."""

    usd_per_hour: float
    date: str
    source: str


class PoolView(View):
    """A pool, and what it serves in time."""

    counts: dict[str, int]
    usd_per_hour: float
    rate_rps: float
    least_rps: float
    most_rps: float
    bound_rps: float

    @classmethod
    def told(cls, figures: PoolFigures, types: tuple[str, ...]) -> Self:
        """Give what is told of a pool; types of which it has none are left out."""
        counted = zip(types, figures.pool, strict=True)
        return cls.of(figures, counts={kind: count for kind, count in counted if count})


class PoolChoiceView(View):
    """Which pool to rent, and why."""

    chosen: PoolView | None
    why: str
    front: list[PoolView]
    prices: dict[str, PricedType]
    dispatch: str
    pools: int
    simulated: int

    @classmethod
    def told(cls, choice: PoolChoice, prices: Mapping[str, PricedType], dispatch: str) -> Self:
        """Give a choice among the types of a price list, in its order."""
        types, chosen = tuple(prices), choice.chosen
        return cls.of(
            choice,
            chosen=None if chosen is None else PoolView.told(chosen, types),
            front=[PoolView.told(each, types) for each in choice.front],
            prices=dict(prices),
            dispatch=dispatch,
        )
