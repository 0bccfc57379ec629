"""What is known of units' outputs as their pods come and go; units are HTTP servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from threading import Event

import pytest

from circinus.deploy.kubernetes.routing.verifying import UnitVerdicts, UnitVerifier
from circinus.deploy.routes.probing import EndpointProbes
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload
from tests.deploy.answering_server import AnsweringServed, answering

PROBES = EndpointProbes(
    examples=[Example(input=i, expected=i) for i in range(2)], tolerance=0.0, timeout_s=10.0
)
OLD, NEW = frozenset({"old"}), frozenset({"new"})
NOTHING = UnitVerdicts()


@pytest.fixture
def units() -> Iterator[dict[str, AnsweringServed]]:
    """Two units that give back what they get."""
    with ExitStack() as stack:
        yield {n: stack.enter_context(answering(lambda given: given)) for n in ("a", "b")}


def verifier(
    units: dict[str, AnsweringServed], clock: ManualClock | None = None, heard: Event | None = None
) -> UnitVerifier:
    return UnitVerifier(
        urls={name: unit.url for name, unit in units.items()},
        probes=PROBES,
        clock=clock or ManualClock(),
        on_change=(heard or Event()).set,
    )


def known(here: UnitVerifier, **templates: frozenset[str]) -> UnitVerdicts:
    here.verify(templates)
    here.wait()
    return here.verify(templates)


def test_without_ready_pods_nobody_is_asked(units: dict[str, AnsweringServed]) -> None:
    assert known(verifier(units), a=frozenset()) == NOTHING
    assert units["a"].asked == []


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_who_says_not_now_is_not_judged_and_asked_again(
    units: dict[str, AnsweringServed], status: int
) -> None:
    clock = ManualClock()
    here = verifier(units, clock)
    units["a"].status = status
    found = known(here, a=OLD)
    assert (found.agree, found.refused, found.again_s) == (frozenset(), frozenset(), 1.0)
    told = f"its outputs are not verified yet: probe 1: {units['a'].url}/: answered {status}"
    assert found.words == {"a": told}
    units["a"].status = 200
    assert known(here, a=OLD).agree == frozenset()  # not before a second has passed
    clock.sleep(1.0)
    assert known(here, a=OLD).agree == {"a"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it ends one
def test_a_metric_that_ends_its_thread_leaves_a_unit_unknown_and_it_is_asked_again(
    units: dict[str, AnsweringServed],
) -> None:
    def ending(output: Payload, expected: Payload) -> float:
        raise SystemExit(1)

    clock = ManualClock()
    here = verifier(units, clock)
    here.probes = replace(PROBES, score=ending)
    told = "its outputs are not verified yet: probes were broken off"
    assert known(here, a=OLD).words == {"a": told}
    here.probes = PROBES
    clock.sleep(1.0)
    assert known(here, a=OLD).agree == {"a"}


def test_a_probe_that_fails_refuses_a_unit_and_the_next_one_is_the_reference(
    units: dict[str, AnsweringServed],
) -> None:
    units["a"].status = 500
    found = known(verifier(units), a=OLD, b=OLD)
    assert found.agree == {"b"}
    assert found.refused == {"a"}
    told = f"probe 1: {units['a'].url}/: answered 500"
    assert found.words == {"a": f"outputs do not agree: a probe failed: {told}"}


def test_the_first_of_the_route_is_the_reference_though_it_answers_last(
    units: dict[str, AnsweringServed],
) -> None:
    go = Event()
    units["a"].answer = lambda given: given if go.wait(10) else None
    units["b"].answer = lambda _: -1
    here, heard = verifier(units), Event()
    here.on_change = heard.set
    assert here.verify({"a": OLD, "b": OLD}).words.keys() == {"a", "b"}
    assert heard.wait(10)  # of b, which is not judged before a
    assert here.verify({"a": OLD, "b": OLD}).words.keys() == {"a", "b"}
    go.set()
    found = known(here, a=OLD, b=OLD)
    told = "outputs do not agree: score 0.000, that of a is 1.000"
    assert found.agree == {"a"}
    assert found.words == {"b": told}


def test_a_first_unit_whose_pods_go_keeps_nobody_waiting(
    units: dict[str, AnsweringServed],
) -> None:
    go, heard = Event(), Event()
    units["a"].answer = lambda given: given if go.wait(10) else None
    here = verifier(units, heard=heard)
    here.verify({"a": OLD, "b": OLD})
    assert heard.wait(10)
    assert here.verify({"b": OLD}).agree == {"b"}
    go.set()


def test_what_was_found_of_pods_that_are_gone_does_not_count(
    units: dict[str, AnsweringServed],
) -> None:
    go, heard = Event(), Event()
    units["a"].answer = lambda given: given if go.wait(10) else None
    here = verifier(units, heard=heard)
    here.verify({"a": OLD})
    here.verify({})
    go.set()
    assert heard.wait(10)
    assert here.verify({}) == NOTHING


def test_a_verdict_holds_while_a_pod_of_it_is_ready_and_not_longer(
    units: dict[str, AnsweringServed],
) -> None:
    here = verifier(units)
    known(here, a=OLD)
    units["a"].status = 500
    assert known(here, a=OLD | NEW).agree == {"a"}
    assert len(units["a"].asked) == 2
    assert known(here, a=NEW).refused == {"a"}
    units["a"].status = 200
    assert known(here, a=frozenset()) == NOTHING
    assert known(here, a=NEW).agree == {"a"}
