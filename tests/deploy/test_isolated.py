"""Answers of children: each is one, or an error that names its cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import Child, ChildFailed, answering
from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.model.payload import Payload, encode

PATIENCE_S = 30.0


@pytest.fixture
def ends() -> Iterator[tuple[Child, Channel]]:
    """Yield a child that never ends, and the other end of its channel."""
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    yield Child(0, ours, lambda timeout_s: None), other
    ours.close()
    other.close()


def test_violations_that_making_an_answer_raised_are_raised_again(
    ends: tuple[Child, Channel],
) -> None:
    child, other = ends

    def refuse() -> dict[str, Payload]:
        raise InvalidInput.of("count", "must be even", 3)

    answering(other, refuse)
    with pytest.raises(InvalidInput, match="count must be even, got 3"):
        child.answer(PATIENCE_S)


@pytest.mark.parametrize("data", [b"no payload", encode([1]), encode({"violations": [[1]]})])
def test_what_is_no_answer_is_named(ends: tuple[Child, Channel], data: bytes) -> None:
    child, other = ends
    other.send(data)
    with pytest.raises(ChildFailed, match=r"its process gave no answer \("):
        child.answer(PATIENCE_S)


def test_a_child_that_goes_on_answering_is_left_once_it_is_cancelled(
    ends: tuple[Child, Channel],
) -> None:
    child, other = ends
    for number in range(3):
        other.send(encode({"number": number}))
    assert child.answer() == {"number": 0}
    with pytest.raises(Stopped, match="cancelled"):
        child.answer(cancelled=lambda: True)


def test_an_answer_that_does_not_come_is_waited_for_so_long(ends: tuple[Child, Channel]) -> None:
    child, _ = ends
    with pytest.raises(TimeoutError, match=r"it took longer than 0\.1 s"):
        child.answer(0.1)
