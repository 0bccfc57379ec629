"""One inference call to a deployed query."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from api.schemas.base import Input, View
from api.schemas.query import Seed
from pipelines.dataset import LARGEST_DATASET
from pipelines.errors import InvalidInput

LONGEST_REQUEST_S = 600.0


class ExampleReference(Input):
    """One of the examples that the pipeline makes or loads."""

    index: Annotated[int, Field(ge=0, lt=LARGEST_DATASET)]
    """Which example, from 0."""
    seed: Seed = 0
    """Of the examples."""
    count: Annotated[int, Field(ge=1, le=LARGEST_DATASET)] = 200
    """How many examples are made or loaded, of which this is one."""

    @model_validator(mode="after")
    def _within(self) -> ExampleReference:
        if self.index >= self.count:
            rule = f"must be less than count, which is {self.count}"
            raise InvalidInput.of("index", rule, self.index)
        return self


class RequestBody(Input):
    """An input of one's own, or an example of the pipeline, whose output is then scored.

    An array in an input is `{"$array": {"dtype", "shape", "base64"}}`, bytes are
    `{"$bytes": base64}`.
    """

    input: JsonValue = None
    """What the source operators get."""
    example: ExampleReference | None = None
    """Take the input from the pipeline's examples."""
    timeout_s: Annotated[float, Field(gt=0, le=LONGEST_REQUEST_S)] = 30.0
    """Seconds to wait for the answer."""

    @model_validator(mode="after")
    def _one_input(self) -> RequestBody:
        given = sorted({"input", "example"} & self.model_fields_set)
        if len(given) != 1 or (given == ["example"] and self.example is None):
            raise InvalidInput.of("", "must have exactly one of input, example", given)
        return self


class RequestReply(View):
    """The answer to a request and where its time went."""

    output: JsonValue
    """What the pipeline gave, arrays and bytes marked as in the request."""
    latency_s: float
    """Seconds from the dispatcher's start to the last operator's output."""
    operator_s: dict[str, float] = Field(default_factory=dict)
    """Operator -> seconds that it ran, waiting for its share included."""
    tier_s: dict[str, float] = Field(default_factory=dict)
    """Tier -> seconds spent there."""
    transfer_s: float = 0.0
    """Seconds spent between tiers."""
    plan_id: str | None = None
    """Plan that answered."""
    score: float | None = None
    """Of the output, in [0, 1]; none without an expected output."""
    emulated: bool = False
    """Whether a tier or link on the way is emulated by waiting."""
