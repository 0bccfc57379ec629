"""Calls of operators in worker processes: a worker asks the process that started it for a permit.

Limits and money are shared by all that call, so they live with the parent of the workers. The
messages go through the pipe of requests and answers, between those two:

    worker    {ask: "admit", operator, most: {endpoint: a Usage}}
    parent    {ticket} or {stopped: why}
    worker    {ask: "settle", used: {endpoint: a Usage}}
    worker    {ask: "stopped"}        in place of an answer: no permit was granted

Anything else is no message: KeyError.

The one rule: every permit is settled, with the most that it may have used where the worker
ends before it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from circinus.deploy.profiling.channel import Channel
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import Stopped
from circinus.pipelines.execution.calling import EndpointCaller, Permit, PermitGate
from circinus.pipelines.model.endpoints import NOTHING_USED, Endpoint, Usage
from circinus.pipelines.model.payload import Payload, decode, encode

_SLACK_S = 5.0  # a worker gives up a call by itself first: then it is no worker's end


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingSide:
    """What operators may call, and who grants permits."""

    endpoints: Mapping[str, Endpoint]  # by name
    gate: PermitGate

    @classmethod
    def of(cls, endpoints: Sequence[Endpoint], gate: PermitGate) -> CallingSide:
        """Return it for these endpoints."""
        return cls(endpoints={each.name: each for each in endpoints}, gate=gate)

    @property
    def document(self) -> list[Payload]:
        """The endpoints as a worker's first message has them."""
        return [cast("Payload", asdict(endpoint)) for endpoint in self.endpoints.values()]


def caller_of(
    channel: Channel, endpoints: Mapping[str, Endpoint], longest_s: float
) -> EndpointCaller:
    """Return what makes the calls of a worker process; one attempt takes `longest_s` at most."""
    return EndpointCaller(
        endpoints=endpoints,
        gate=AskingGate(channel.send, channel.receive),
        clock=SystemClock(),
        rng=np.random.Generator(np.random.PCG64()),  # of waits: no two workers shall wait alike
        longest_s=longest_s,
    )


@dataclass(frozen=True, slots=True)
class AskingGate:
    """The `PermitGate` of a worker process, which asks the one that started it."""

    send: Callable[[bytes], None]
    receive: Callable[[], bytes]

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """See `PermitGate`; Stopped whatever the reason is: the parent knows that."""
        self.send(encode({"ask": "admit", "operator": operator, "most": _listed(most)}))
        reply = cast("dict[str, str]", decode(self.receive()))
        if "stopped" in reply:
            raise Stopped(reply["stopped"])
        return Permit(operator=operator, most=most, ticket=reply["ticket"])

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """See `PermitGate`."""
        self.send(encode({"ask": "settle", "used": _listed(used)}))


@dataclass(slots=True)
class Answered:
    """The other side of one run: the thread that waits for the run asks a gate for permits.

    A worker makes one attempt at a time.
    """

    gate: PermitGate
    clock: Clock
    timeout_s: float  # of an attempt; waiting for a permit is none of it
    longest_wait_s: float  # between two attempts
    used: Usage = NOTHING_USED  # by attempts that are over
    waited_s: float = 0.0  # for leave
    limit_s: float = field(default=0.0, init=False)  # until the next message has to be there
    _open: Permit | None = field(default=None, init=False)
    _refusal: Stopped | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.limit_s = self.timeout_s

    def answer(self, message: Mapping[str, Any], send: Callable[[bytes], None]) -> None:
        """Answer one message; raises what the gate raised, once the worker was notified."""
        if message["ask"] == "admit":
            self._admit(message, send)
        elif message["ask"] == "settle":
            self._settle(_usages(message["used"]))
            self.limit_s = self.longest_wait_s + self.timeout_s
        elif message["ask"] == "stopped" and self._refusal is not None:
            raise self._refusal
        else:
            raise KeyError(message["ask"])

    def lost(self) -> Usage:
        """Settle what was under way when the worker ended; return the usage of the whole run."""
        if self._open is not None:
            self._settle({name: most.finite for name, most in self._open.most.items()})
        return self.used

    def _admit(self, message: Mapping[str, Any], send: Callable[[bytes], None]) -> None:
        began = self.clock.now()
        try:
            permit = self.gate.admit(message["operator"], _usages(message["most"]))
            self.waited_s += self.clock.now() - began
        except Stopped as refusal:
            self._refusal = refusal
            send(encode({"stopped": str(refusal)}))
            return
        self._open = permit
        try:
            send(encode({"ticket": permit.ticket}))
        except OSError:  # it ended before it could call
            self._settle({})
            raise
        self.limit_s = self.timeout_s + _SLACK_S

    def _settle(self, used: Mapping[str, Usage]) -> None:
        permit, self._open = self._open, None
        if permit is not None:
            self.gate.settle(permit, used)
            for one in used.values():
                self.used = self.used.plus(one)


def _listed(each: Mapping[str, Usage]) -> dict[str, Payload]:
    return {name: list(usage) for name, usage in each.items()}


def _usages(each: Mapping[str, Sequence[float]]) -> dict[str, Usage]:
    return {name: Usage(*figures) for name, figures in each.items()}
