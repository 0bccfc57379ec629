from __future__ import annotations

from circinus.pipelines.backoff import Backoff

PAUSES = Backoff(0.1, 30.0)


def test_pauses_are_positive_and_never_shrink() -> None:
    pauses = [PAUSES.pause_s(failures) for failures in range(1, 2000)]
    assert min(pauses) > 0
    assert pauses == sorted(pauses)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [PAUSES.pause_s(n) for n in (1, 2, 3, 9, 10, 10_000)]
    assert pauses == [0.1, 0.2, 0.4, 25.6, 30.0, 30.0]


def test_chance_spreads_a_pause_over_its_second_half() -> None:
    assert [PAUSES.spread_s(2, chance) for chance in (0.0, 0.5)] == [0.1, 0.2 * 0.75]
