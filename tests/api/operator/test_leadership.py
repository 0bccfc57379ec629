"""Of several controllers one acts at a time, and the next one takes over when it is gone."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.operator.leadership import ClusterLeases, Contender, Lease, lead
from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.ownership import ObjectOwner
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from circinus.pipelines.errors import InvalidInput, Unavailable


class FakeLeases(ClusterLeases):
    """One record; a write needs the version that is there."""

    def __init__(self, duration_s: float = 10.0) -> None:
        self.duration_s = duration_s
        self.lease = Lease()
        self.down = False

    def read(self) -> Lease:
        if self.down:
            raise Unavailable("no answer", retry_after_s=1.0)
        return self.lease

    def write(self, lease: Lease, holder: str, *, at: float) -> Lease | None:
        if self.down:
            raise Unavailable("no answer", retry_after_s=1.0)
        if lease.version != self.lease.version:
            return None
        version = str(int(lease.version or "0") + 1)
        self.lease = Lease(holder=holder, renewed=str(at), version=version)
        return self.lease


class Writes:
    """A cluster that notes what is created."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Object]] = []

    def get(self, path: str) -> None:
        self.made.append((path, {}))

    def create(self, path: str, body: Object) -> Object:
        self.made.append((path, body))
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}


def candidate(
    name: str, leases: ClusterLeases, clock: Clock, *, renew_s: float = 2.0
) -> Contender:
    return Contender(identity=name, leases=leases, clock=clock, renew_s=renew_s)


def test_a_lease_must_outlast_a_renewal_that_fails() -> None:
    with pytest.raises(InvalidInput, match=r"renew_s must be below half of duration_s, got 5\.0"):
        candidate("a", FakeLeases(), ManualClock(), renew_s=5.0)


def test_a_lease_is_the_releases_and_goes_with_the_pod_that_wrote_it() -> None:
    cluster = Writes()
    pod = ObjectOwner(api_version="v1", kind="Pod", name="one-operator-x", uid="u-1")
    leases = ClusterLeases(
        cluster=cast("Cluster", cluster), namespace="ns", release="one", pod=pod
    )
    assert candidate("a", leases, ManualClock()).tick()
    (read, _), (_, lease) = cluster.made
    assert read == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/one-operator"
    assert lease["metadata"]["name"] == "one-operator"
    assert lease["metadata"]["ownerReferences"] == [pod.reference]


def test_the_first_one_leads_and_the_second_waits() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a, b = candidate("a", leases, clock), candidate("b", leases, clock)
    assert (a.tick(), b.tick()) == (True, False)
    assert (a.leads, b.leads) == (True, False)


def test_a_silent_leader_is_replaced_after_the_lease_and_not_before() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a, b = candidate("a", leases, clock), candidate("b", leases, clock)
    a.tick()
    clock.sleep(100.0)  # however old the record is: b sees it for the first time
    assert not b.tick()
    clock.sleep(9.9)
    assert not b.tick()
    clock.sleep(0.1)
    assert b.tick()
    assert not a.tick()


def test_who_waits_looks_again_when_the_lease_is_due_and_not_sooner_than_it_can_be() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a, b = candidate("a", leases, clock), candidate("b", leases, clock)
    a.tick()
    b.tick()
    assert b.pause_s == 2.0
    clock.sleep(9.5)
    assert b.pause_s == 0.5
    clock.sleep(b.pause_s)
    assert b.pause_s == 2.0  # should the cluster not answer now, it is not asked all the time
    assert b.tick()


def test_a_leader_that_cannot_renew_stops_in_time() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a = candidate("a", leases, clock)
    a.tick()
    leases.down = True
    clock.sleep(9.9)
    with pytest.raises(Unavailable):
        a.tick()
    assert a.leads
    clock.sleep(0.1)
    assert not a.leads


def test_who_is_overtaken_while_writing_does_not_lead() -> None:
    leases, clock = FakeLeases(), ManualClock()

    class Overtaken(FakeLeases):
        def read(self) -> Lease:
            found = leases.read()
            leases.write(found, "other", at=0.0)
            return found

        def write(self, lease: Lease, holder: str, *, at: float) -> Lease | None:
            return leases.write(lease, holder, at=at)

    late = candidate("late", Overtaken(), clock)
    assert not late.tick()
    assert leases.lease.holder == "other"


def test_a_resigned_lease_is_free_at_once() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a, b = candidate("a", leases, clock), candidate("b", leases, clock)
    a.tick()
    a.resign()
    assert b.tick()
    a.resign()  # it is no longer a's to give
    assert leases.lease.holder == "b"


def test_a_lease_that_ended_and_that_nobody_took_is_resigned_all_the_same() -> None:
    leases, clock = FakeLeases(), ManualClock()
    a, b = candidate("a", leases, clock), candidate("b", leases, clock)
    a.tick()
    clock.sleep(11.0)
    a.resign()
    assert b.tick()  # which had not seen the lease before, and would have waited


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 12.0)), max_size=40))
def test_never_do_two_lead_at_once(steps: list[tuple[int, float]]) -> None:
    leases, clock = FakeLeases(), ManualClock()
    all_three = [candidate(str(i), leases, clock) for i in range(3)]
    for i, pause in steps:
        all_three[i].tick()
        assert sum(c.leads for c in all_three) <= 1
        clock.sleep(pause)
        assert sum(c.leads for c in all_three) <= 1


def test_acting_ends_when_the_lease_is_lost_and_begins_again_when_it_is_won() -> None:
    leases = FakeLeases(duration_s=0.2)
    a = candidate("a", leases, SystemClock(), renew_s=0.05)
    log: list[str] = []

    async def act(over: asyncio.Event) -> None:
        log.append("begin")
        if log.count("begin") == 1:
            leases.down = True
        await over.wait()
        log.append("end")
        leases.down = False

    async def twice() -> None:
        leading = asyncio.ensure_future(lead(a, act))
        while log.count("begin") < 2:
            await asyncio.sleep(0.005)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    asyncio.run(asyncio.wait_for(twice(), 20))
    assert log == ["begin", "end", "begin", "end"]
    assert leases.lease.holder == ""  # given up on the way out


def test_a_cluster_that_does_not_answer_keeps_nobody_from_leaving() -> None:
    leases = FakeLeases()
    a = candidate("a", leases, SystemClock())

    async def act(over: asyncio.Event) -> None:
        leases.down = True

    asyncio.run(asyncio.wait_for(lead(a, act), 20))
    assert leases.lease.holder == "a"  # until it ends


def test_an_error_of_acting_ends_the_candidature() -> None:
    a = candidate("a", FakeLeases(), SystemClock())

    async def act(over: asyncio.Event) -> None:
        raise InvalidInput.of("token", "must be known", None)

    with pytest.raises(InvalidInput, match="token must be known"):
        asyncio.run(lead(a, act))
