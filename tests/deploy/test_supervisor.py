from __future__ import annotations

from circinus.deploy.runtime.supervisor import pause_s


def test_pauses_are_positive_and_never_shrink() -> None:
    pauses = [pause_s(failures) for failures in range(1, 2000)]
    assert min(pauses) > 0
    assert pauses == sorted(pauses)


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 9, 10, 10_000)] == [0.1, 0.2, 0.4, 25.6, 30.0, 30.0]
