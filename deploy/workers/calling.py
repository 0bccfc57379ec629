"""Single attempts of operators that call endpoints. Knows no gRPC.

A worker makes one attempt in each call that it serves: its sender has a permit for one, and
learns when the next is due. So rate limits are in one place, with the sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from circinus.deploy.workers.errors import CallFailed
from circinus.deploy.workers.proto.worker_pb2 import EndpointUsage, OperatorUsage
from circinus.pipelines.clock import Clock
from circinus.pipelines.execution.calling import EndpointCaller, Permit
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload

UsedByOperator = Mapping[str, Mapping[str, Usage]]
"""Operator -> endpoint -> what was used of it."""


def to_wire(used: UsedByOperator) -> dict[str, OperatorUsage]:
    """Return what `from_wire` restores."""
    return {
        operator: OperatorUsage(
            endpoints={name: EndpointUsage(**one._asdict()) for name, one in by_endpoint.items()}
        )
        for operator, by_endpoint in used.items()
    }


def from_wire(used: Mapping[str, OperatorUsage]) -> dict[str, dict[str, Usage]]:
    """Return what was used, from a message's field."""
    return {
        operator: {
            name: Usage(*(getattr(one, field) for field in Usage._fields))
            for name, one in usage.endpoints.items()
        }
        for operator, usage in used.items()
    }


class Attempt(NamedTuple):
    """The outcome of an attempt."""

    output: Payload
    seconds: float
    used: Mapping[str, Usage]  # by endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Makes attempts. Threads may share it."""

    endpoints: Mapping[str, Endpoint]  # by name: all that there are
    clock: Clock
    rng: np.random.Generator  # spreads the waits of many callers

    def make(
        self, operator: Operator, inputs: Payload, configuration: Configuration, number: int
    ) -> Attempt:
        """Return what an operator makes of the inputs in one attempt, the `number`-th, from 1.

        CallFailed if it gives nothing, InvalidInput if an endpoint is not there.
        """
        settled = _Settled()
        caller = EndpointCaller(
            endpoints=self.endpoints,
            gate=settled,
            clock=self.clock,
            rng=self.rng,
        )
        once = replace(operator, retries=replace(operator.retries, attempts=1))
        called = caller.run(once, inputs, configuration)
        failure = called.failure
        if failure is None:
            return Attempt(called.output, called.seconds, settled.used)
        cause, chance = failure.__cause__ or failure, float(self.rng.random())
        again_in_s = operator.retries.wait_s(number, cause, self.clock.timestamp(), chance)
        used = {operator.name: settled.used}
        raise CallFailed(
            operator.name, failure.cause, failure.violations, used, again_in_s
        ) from cause


@dataclass(slots=True)
class _Settled:
    """A `PermitGate` of one attempt that is permitted; it records what was used."""

    used: dict[str, Usage] = field(default_factory=dict)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """See `PermitGate`."""
        return Permit(operator=operator, most=most)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """See `PermitGate`."""
        self.used = dict(used)
