from __future__ import annotations

import pytest

from circinus.deploy.runtime.supervisor import RestartSettings
from circinus.pipelines.errors import InvalidInput


@pytest.mark.parametrize("field", ["first_s", "longest_s", "calm_s"])
def test_pauses_must_be_positive(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must be finite and > 0, got 0"):
        RestartSettings(**{field: 0.0})


def test_pauses_double_up_to_the_longest() -> None:
    settings = RestartSettings(first_s=0.5, longest_s=3.0)
    assert [settings.pause_s(n) for n in (1, 2, 3, 4, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
