"""Walks a request through the segments of a deployed plan.

Every segment starts when its inputs have arrived, so branches on unlike tiers run at
the same time. Latency is seen from here: from having the request to having its output,
with the waits that stand for thin links. Its parts are those of the path that the
request waited for: of a segment's inputs the one that arrived last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import inf
from sys import float_info

import numpy as np

from circinus.deploy.runtime.calls import AttemptedCall, Callee, CallGate, Calls, UnlimitedCalls
from circinus.deploy.runtime.demand import SeenDemand, TrafficNews, classes_of, seconds_of
from circinus.deploy.runtime.hearing import Came, Sightings, Took
from circinus.deploy.runtime.learning import Learnt
from circinus.deploy.runtime.observed import LatestAnswers, SeenRequests
from circinus.deploy.runtime.segments import Segment, segments
from circinus.deploy.runtime.served_bill import ServedBill
from circinus.deploy.runtime.tier_queue import LEAST_LEFT_S, QueueFigures, TierQueue
from circinus.deploy.runtime.traffic import Lately, Traffic
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost, TooManyRequests
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload, decode, encoded, encoded_together
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import LatencyStatistic
from circinus.scheduler.dispatch.policy import DispatchPolicy
from circinus.scheduler.pool.monitor import TrafficChange, TrafficMonitor

RECENT = 200
"""Latest answers, whose seconds are kept one by one."""
_POLL_S = 0.01
_STALE_S = 1.0  # what was learnt so long ago turns nobody away: only a request can tell
_NEWEST = 0.1  # weight of the newest request in what is still to do after a segment


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """An answer and how long it took.

    `latency_s = path_operator_s + waiting_s + transfer_s + overhead_s`, all of the path that
    the request waited for; with parallel branches `operator_s` can add up to more.
    """

    encoded: bytes  # the pipeline's output, as workers send it
    latency_s: float  # from having the request to having the output
    operator_s: Mapping[str, float]  # of each, with the waits for share and emulated speed
    tier_s: Mapping[str, float]  # tier -> seconds that its instances were busy with operators
    path_operator_s: float  # operators on the path
    waiting_s: float  # for an instance's turn
    transfer_s: float  # emulated links
    overhead_s: float  # the rest: encoding, gRPC, event loop
    retries: int  # 1 if an instance was lost with the request, else 0
    # operator -> what it used of endpoints, all attempts; those that called none are left out
    used: Mapping[str, Usage] = field(default_factory=dict)

    @cached_property
    def output(self) -> Payload:
        """The pipeline's output; reading tens of megabytes of text takes seconds."""
        return decode(self.encoded)

    @property
    def usd(self) -> float:
        """US dollars that its calls to endpoints cost."""
        return sum(used.usd for used in self.used.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTerms:
    """How long a client waits, and whether it takes an answer that comes after the deadline."""

    timeout_s: float  # until the client gives up, `> 0`
    serve_late: bool = False  # else it may be turned away once it cannot be in time any more
    arrived: float | None = None  # on the dispatcher's clock; None: at this moment

    def __post_init__(self) -> None:
        checks.positive("timeout_s", self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Latency of the requests of late, in seconds; None before the first."""

    count: int  # requests that were answered since the deployment began
    failed: int  # those that got an error instead
    window: int  # latest answers, that the figures are over
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Where the seconds of an answered request went."""

    latency_s: float  # see `RequestResult`, as the others
    tier_s: Mapping[str, float]
    moved_s: float  # all but operators and waiting for an instance's turn


def elsewhere_s(taken: Sequence[Taken], tiers: Iterable[str]) -> dict[str, float]:
    """Return, of each tier, the mean seconds that answers spent elsewhere; none of no answers."""
    return {
        tier: sum(
            each.moved_s + sum(s for name, s in each.tier_s.items() if name != tier)
            for each in taken
        )
        / len(taken)
        for tier in tiers
        if taken
    }


class LatencyWindow:
    """Latencies of the last requests. Not safe to share between threads."""

    def __init__(self, size: int = 1000) -> None:
        self._latencies: deque[float] = deque(maxlen=size)
        self._count = 0
        self._failed = 0
        self._observed: Observed | None = None  # since the last request

    def answered(self, latency_s: float) -> None:
        """Note a request that got its output."""
        self._count += 1
        self._latencies.append(latency_s)
        self._observed = None

    def failed(self) -> None:
        """Note a request that got an error."""
        self._failed += 1
        self._observed = None

    @property
    def count(self) -> int:
        """Requests that were answered since the deployment began."""
        return self._count

    def observed(self) -> Observed:
        """Return the figures so far."""
        if self._observed is None:
            latencies = np.array(self._latencies)
            figures = {s.value: float(s.of(latencies)) for s in LatencyStatistic if len(latencies)}
            self._observed = Observed(
                count=self._count, failed=self._failed, window=len(latencies), **figures
            )
        return self._observed


@dataclass(frozen=True, slots=True)
class _Data:
    """An encoded payload at the tier where it was made, and where the seconds of its path went."""

    data: bytes
    size: int
    tier: str
    at: float
    operators_s: float = 0.0
    waiting_s: float = 0.0
    transfer_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Walk:
    """A request on its way."""

    began: float
    ends: float  # when the client gives up
    due: float  # when it should be answered; infinite: whenever
    terms: RequestTerms
    made: dict[str, _Data]
    size: float = 1.0  # of its input
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by operator
    operator_s: dict[str, float] = field(default_factory=dict)
    used: dict[str, Usage] = field(default_factory=dict)  # of endpoints, by operator
    answered: dict[str, float] = field(default_factory=dict)  # when, by a segment's first operator
    retries: int = 0
    doing: str = "it started"


@dataclass(frozen=True, slots=True)
class _Served:
    """What a segment gave."""

    reply: RunReply
    operators_s: float  # of its operators one after the other, or of a call's attempts and waits
    waited_s: float  # for an instance's turn, and for leave to call


@dataclass(frozen=True, slots=True)
class _Rest:
    """Seconds from a segment's answer to the request's, without waits: learnt, and when last."""

    seconds: float
    at: float


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Sends the requests of one deployed plan to its instances. Used within one event loop."""

    pipeline: Pipeline
    plan: Plan
    links: Infrastructure  # whose emulated links are waited for
    policy: DispatchPolicy
    clock: Clock
    queue_limit: int
    gate: CallGate = field(default_factory=UnlimitedCalls)  # of its calls to endpoints
    segments: tuple[Segment, ...] = field(init=False)
    queues: dict[str, TierQueue] = field(init=False)
    latencies: LatencyWindow = field(default_factory=LatencyWindow, init=False)
    traffic: Traffic = field(init=False)
    latest: LatestAnswers = field(default_factory=LatestAnswers, init=False)
    taken: deque[Taken] = field(default_factory=lambda: deque(maxlen=RECENT), init=False)
    monitor: TrafficMonitor = field(default_factory=TrafficMonitor, init=False)
    sightings: Sightings = field(default_factory=Sightings, init=False)  # not of what it heard
    in_hand: int = field(default=0, init=False)  # requests not answered yet
    calls: Calls = field(init=False)
    erred: int = field(default=0, init=False)  # requests that failed, but not those refused
    deadline_s: float | None = field(default=None, init=False)  # see `DesiredDeployment`
    # what is still to do once a segment is done, by its first operator
    _rest: dict[str, _Rest] = field(default_factory=dict, init=False)
    _callees: dict[str, Callee] = field(init=False)  # operators on remote tiers
    _watched: float = field(default=-inf, init=False)  # when the last one came that it knows of
    _changes: int = field(default=0, init=False)  # of the requests, told by the monitor
    _changed: TrafficChange | None = field(default=None, init=False)  # the last of them

    def __post_init__(self) -> None:
        remote = [tier.name for tier in self.links.tiers if tier.remote]
        placement = self.plan.deployment.placement
        self.segments = segments(self.pipeline.graph, placement, remote)
        endpoints = {each.name: each for each in self.links.endpoints}
        self._callees = {
            name: Callee.of(self.pipeline.by_name[name], self.plan.configuration, endpoints)
            for name, tier in placement.items()
            if tier in remote
        }
        self.calls = Calls(self.gate, self.clock)
        self.imitate(self.links)
        self.traffic = Traffic(self.clock.now())
        limit, prior_s = self.queue_limit, defaultdict(float, self.plan.tier_service_s)
        self.queues = {
            tier: TierQueue(
                *(tier, self.policy, self.clock),
                limit=limit,
                prior_s=prior_s[tier],
                sightings=self.sightings,
            )
            for tier in self.plan.deployment.tiers
        }

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let the waits that stand for links be those of an infrastructure from now on."""
        self.links = emulated_links(infrastructure)

    def learnt(self) -> Learnt:
        """Return what was learnt of latencies, for `recall`."""
        return {tier: queue.latencies.dump() for tier, queue in self.queues.items()}

    def recall(self, learnt: Learnt) -> None:
        """Go on from what an earlier dispatcher of the plan learnt."""
        for tier in learnt.keys() & self.queues.keys():
            self.queues[tier].latencies.recall(learnt[tier])

    def figures(self) -> dict[str, QueueFigures]:
        """Return tier -> its queue at this moment, with what was used of its endpoints."""
        found = {tier: queue.figures() for tier, queue in self.queues.items()}
        for segment in self.segments:
            for used in self.calls.used.get(segment.operators[0], {}).values():
                figures = found[segment.tier]
                found[segment.tier] = replace(figures, endpoints=figures.endpoints.plus(used))
        return found

    def bill(self) -> ServedBill | None:
        """Return what its calls came to; None: the plan calls nothing."""
        if not self._callees:
            return None
        return self.calls.bill(self.plan.id, self.latencies.count, self.erred)

    def lately(self) -> tuple[Lately, ...]:
        """Return what requests got in the last minute, ten minutes and hour."""
        return self.traffic.lately(self.clock.now())

    def seen_requests(self) -> SeenRequests:
        """Return what requests got lately, one by one, and how hard instances work."""
        now = self.clock.now()
        minute, *_ = self.traffic.lately(now)
        return SeenRequests(
            plan_id=self.plan.id,
            since_s=now - self.traffic.since,
            arrivals_per_s=self.traffic.arrivals_per_s(now),
            lately=minute,
            answers=self.latest.seen(now),
            tiers={tier: queue.load() for tier, queue in self.queues.items()},
        )

    def news(self) -> TrafficNews:
        """Return whether requests have become other ones."""
        seen, last = self.monitor.seen, self._changed
        return TrafficNews(plan_id=self.plan.id, changes=self._changes, seen=seen, last=last)

    def demand(self) -> SeenDemand:
        """Return what requests are lately, and what they take on types of machines."""
        sizes, classes = classes_of(self.monitor.sizes())
        kinds: defaultdict[str, list[str]] = defaultdict(list)
        for segment in self.segments:
            kinds[segment.tier].append(segment.operators[0])
        seconds = {
            tier.name: seconds_of(
                self.queues[tier.name].latencies,
                kinds[tier.name],
                [each.name for each in tier.types],
                sizes,
            )
            for tier in self.links.tiers
            if tier.name in self.queues
        }
        return SeenDemand(
            plan_id=self.plan.id,
            sizes=sizes,
            classes=classes,
            rate_per_s=self.monitor.rate_rps,
            seconds=seconds,
            elsewhere_s=elsewhere_s(tuple(self.taken), self.queues),
        )

    def hear(self, came: Iterable[Came], took: Iterable[Took]) -> None:
        """Learn from requests that another dispatcher sent to the same instances.

        They came by this one's clock, and in order; one that came before others that are known is
        taken to have come with them.
        """
        for request in came:
            self._observe(request)
        for tier, kind, size, name, seconds in took:
            if tier in self.queues:
                self.queues[tier].latencies.observe((kind, size), name, seconds)

    def _watch(self, size: float, now: float) -> None:
        came = Came(now, size, sum(queue.waiting for queue in self.queues.values()))
        self.sightings.note_came(came)
        self._observe(came)

    def _observe(self, came: Came) -> None:
        self._watched = max(self._watched, came.at)
        found = self.monitor.observe(came.size, self._watched, came.waiting)
        if found is not None:
            self._changes, self._changed = self._changes + 1, found

    def refuse_hopeless(
        self, arrived: float, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Raise TooManyRequests if a request would be turned away the moment that it is made.

        But not where `unless` holds, which is asked only then: nothing is counted of it yet. It
        costs less than reading the request. Some are turned away later all the same.
        """
        if self.deadline_s is None:
            return
        first = self.segments[0]
        # Of a request that has a size nothing is known before it is read.
        sized = self.pipeline.request_size is not None
        due_s = inf if sized else self._due_in_s(arrived + self.deadline_s, first)
        try:
            self.queues[first.tier].refuse_hopeless(first.operators[0], due_s, unless=unless)
        except TooManyRequests as error:
            now = self.clock.now()
            self.traffic.arrived(now)
            if not sized:  # else how large it is was never read
                self._watch(1.0, now)
            self._note_failure(error)
            raise

    async def close(self, *, drain_s: float) -> None:
        """Let the requests in hand finish for `drain_s`, then turn away those that wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self.in_hand > 0:
                    await asyncio.sleep(_POLL_S)
                await self.calls.idle()  # of requests that went away: they are paid, too
        for queue in self.queues.values():
            await queue.close()

    async def request(self, input: Payload, terms: RequestTerms) -> RequestResult:
        """Return the output for an input; OperatorFailed if an operator or `request_size` raised.

        InvalidInput if the input is no payload or one of them says what is wrong with it,
        TooManyRequests if too many wait, or it cannot be in time and others can, DeadlineExceeded
        after `terms.timeout_s`, InstanceLost if it lost two instances, or one after its deadline.
        Sending a request twice to be sure is left out on purpose: where machines are used to the
        full it takes the time that others need.
        """
        began = self.clock.now()
        arrived = began if terms.arrived is None else terms.arrived
        given = _Data(*encoded(input), self.links.origin or "", began)
        bound_s = inf if self.deadline_s is None or terms.serve_late else self.deadline_s
        walk = _Walk(began, arrived + terms.timeout_s, arrived + bound_s, terms, {INPUT: given})
        self.in_hand += 1
        self.traffic.arrived(began)
        try:
            walk.size = self.pipeline.size_of(input)
            self._watch(walk.size, began)
            async with asyncio.timeout(max(walk.ends - began, 0.0)):
                await self._through(walk)
        except TimeoutError as error:
            self._note_failure(error)
            raise DeadlineExceeded(terms.timeout_s, walk.doing) from error
        except CircinusError as error:
            self._note_failure(error)
            if isinstance(error, OperatorFailed) and error.violations:
                raise InvalidInput(error.violations) from error
            raise
        finally:
            self.in_hand -= 1
        result, now = self._result(walk), self.clock.now()
        self.latencies.answered(result.latency_s)
        moved_s = result.transfer_s + result.overhead_s
        self.taken.append(Taken(result.latency_s, result.tier_s, moved_s))
        in_time = self.deadline_s is None or now - arrived <= self.deadline_s
        self.traffic.answered(now, now - arrived, in_time=in_time)
        self.latest.note(now, now - arrived, result.usd)
        return result

    def _note_failure(self, error: Exception) -> None:
        self.latencies.failed()
        note = self.traffic.failed
        if isinstance(error, TooManyRequests):
            note = self.traffic.turned_away
        else:
            self.erred += 1
        note(self.clock.now())

    async def _through(self, walk: _Walk) -> None:
        if len(self.segments) == 1:  # nothing runs beside it
            await self._segment(walk, self.segments[0])
            return
        loop = asyncio.get_running_loop()
        for segment in self.segments:
            task = loop.create_task(self._segment(walk, segment))
            walk.tasks.update(dict.fromkeys(segment.operators, task))
        tasks = set(walk.tasks.values())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _segment(self, walk: _Walk, segment: Segment) -> None:
        for name in segment.needs:
            await walk.tasks[name]
        last, transfer_s = await self._arrival(walk, segment)
        asked = self.clock.now()
        try:
            served = await self._served(walk, segment)
        except InstanceLost:
            # Once, or a request that kills its instance would kill all of them; and only while
            # the answer can be in time: beyond that it takes the time that others need.
            walk.retries += 1
            if walk.retries > 1 or self.clock.now() >= walk.due:
                raise
            served = await self._served(walk, segment)
        walk.answered[segment.operators[0]] = self.clock.now()
        operators_s, waited_s = served.operators_s, served.waited_s
        for name, data in served.reply.outputs.items():
            walk.made[name] = _Data(
                data,
                served.reply.sizes[name],
                segment.tier,
                # Encoding and gRPC are part of a hand-over: outputs are taken to be made so soon
                # that these count against the time of the emulated link that comes next.
                asked + waited_s + operators_s,
                last.operators_s + operators_s,
                last.waiting_s + waited_s,
                last.transfer_s + transfer_s,
            )

    async def _arrival(self, walk: _Walk, segment: Segment) -> tuple[_Data, float]:
        """Wait until all inputs are at the tier; give the last one and what it travelled."""
        arrivals = []
        for name in segment.inputs:
            data = walk.made[name]
            route = self.links.route(data.tier, segment.tier)
            arrivals.append((data, route.delay_s + route.s_per_byte * data.size))
        last, transfer_s = max(arrivals, key=lambda arrival: arrival[0].at + arrival[1])
        wait = last.at + transfer_s - self.clock.now()
        if wait > 0:
            walk.doing = f"data travelled to tier {segment.tier}"
            await asyncio.sleep(wait)
        return last, transfer_s

    async def _served(self, walk: _Walk, segment: Segment) -> _Served:
        names = ", ".join(segment.operators)
        inputs = {name: walk.made[name].data for name in segment.inputs}
        walk.doing = f"{names} waited for an instance of tier {segment.tier}"
        callee = self._callees.get(segment.operators[0])
        if callee is not None:
            return await self._called(walk, segment, inputs, callee)

        def work(client: WorkerClient) -> Awaitable[RunReply]:
            walk.doing = f"{names} ran on tier {segment.tier}"
            left = self._time_left_s(walk)
            due_in_s = None if walk.due == inf else self._due_in_s(walk.due, segment)
            return client.run(
                segment.operators, inputs, segment.wants, timeout_s=left, due_in_s=due_in_s
            )

        try:
            reply, waited_s = await self.queues[segment.tier].serve(
                segment.operators[0],
                work,
                time_left_s=self._due_in_s(walk.due, segment),
                size=walk.size,
            )
        except DeadlineExceeded as error:  # told by the worker, just before we would notice
            raise DeadlineExceeded(walk.terms.timeout_s, walk.doing) from error
        walk.operator_s.update(reply.seconds)
        return _Served(reply, sum(reply.seconds.values()), waited_s)

    async def _called(
        self, walk: _Walk, segment: Segment, inputs: Mapping[str, bytes], callee: Callee
    ) -> _Served:
        def send(client: WorkerClient, number: int, timeout_s: float) -> Awaitable[RunReply]:
            return client.run(
                segment.operators, inputs, segment.wants, timeout_s=timeout_s, attempt=number
            )

        call = AttemptedCall(
            callee=callee,
            send=send,
            size=walk.size,
            due_in_s=lambda: self._due_in_s(walk.due, segment),
            ends_in_s=lambda: walk.ends - self.clock.now(),
            doing=lambda what: setattr(walk, "doing", what),
        )
        made = await self.calls.make(self.queues[segment.tier], call)
        walk.operator_s[callee.operator] = made.seconds
        for operator, by_endpoint in made.used.items():
            walk.used[operator] = reduce(Usage.plus, by_endpoint.values(), NOTHING_USED)
        return _Served(made.reply, made.seconds, made.waited_s)

    def _time_left_s(self, walk: _Walk) -> float:
        left = walk.ends - self.clock.now()
        if left <= 0:
            raise DeadlineExceeded(walk.terms.timeout_s, walk.doing)
        return left

    def _due_in_s(self, due: float, segment: Segment) -> float:
        """Return the seconds within which a segment must be done for the answer to be in time."""
        rest = self._rest.get(segment.operators[0])
        now = self.clock.now()
        rest_s = 0.0 if rest is None or now - rest.at > _STALE_S else rest.seconds
        return max(due - now - rest_s, LEAST_LEFT_S)

    def _result(self, walk: _Walk) -> RequestResult:
        sinks = {sink: walk.made[sink] for sink in self.pipeline.graph.sinks}
        last = max(sinks.values(), key=lambda made: made.at)
        encoded_output = last.data
        if len(sinks) > 1:
            encoded_output = encoded_together({sink: made.data for sink, made in sinks.items()})
        latency_s = self.clock.now() - walk.began
        self._learn_rest(walk, last)
        tier_s = dict.fromkeys(self.queues, 0.0)
        for segment in self.segments:
            tier_s[segment.tier] += sum(walk.operator_s[name] for name in segment.operators)
        return RequestResult(
            encoded=encoded_output,
            latency_s=latency_s,
            operator_s=walk.operator_s,
            tier_s=tier_s,
            path_operator_s=last.operators_s,
            waiting_s=last.waiting_s,
            transfer_s=last.transfer_s,
            overhead_s=latency_s - (last.operators_s + last.waiting_s + last.transfer_s),
            retries=walk.retries,
            used=walk.used,
        )

    def _learn_rest(self, walk: _Walk, last: _Data) -> None:
        now = self.clock.now()
        for segment in self.segments:
            name = segment.operators[0]
            waited_s = last.waiting_s - walk.made[segment.wants[-1]].waiting_s
            seen_s = max(now - walk.answered[name] - waited_s, 0.0)
            known = self._rest.get(name)
            if known is None or now - known.at > _STALE_S:
                self._rest[name] = _Rest(seen_s, now)
            else:
                seconds = known.seconds + _NEWEST * (seen_s - known.seconds)
                self._rest[name] = _Rest(seconds, now)


def emulated_links(infrastructure: Infrastructure) -> Infrastructure:
    """Return the infrastructure whose links cost what has to be waited for, so the same routes.

    A link that is not emulated costs nothing here, as the network itself takes its time.
    """
    links = tuple(
        link if link.emulated else replace(link, delay_s=0.0, bandwidth_bytes_per_s=float_info.max)
        for link in infrastructure.links
    )
    return replace(infrastructure, links=links)
