from __future__ import annotations

import pytest

from circinus.deploy.runtime.instances import emulated_speed
from circinus.deploy.runtime.walk import emulated_links
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier


@pytest.mark.parametrize(
    ("tier", "speed"),
    [
        (Tier(name="t"), 1.0),
        (Tier(name="t", speed_factor=0.5, emulated=True), 0.5),
        (Tier(name="t", speed_factor=0.5), 1.0),  # this machine's own
        (Tier(name="t", speed_factor=2.0, emulated=True), 1.0),  # faster than this machine
    ],
)
def test_only_slower_tiers_are_emulated(tier: Tier, speed: float) -> None:
    assert emulated_speed(tier) == speed


def test_a_route_is_waited_for_only_where_its_links_are_emulated() -> None:
    infrastructure = Infrastructure(
        name="mixed",
        tiers=(Tier(name="a"), Tier(name="b"), Tier(name="c")),
        links=(
            Link(between=("a", "b"), bandwidth_bytes_per_s=100.0, delay_s=0.5, emulated=True),
            Link(between=("b", "c"), bandwidth_bytes_per_s=50.0, delay_s=0.25),
        ),
    )
    links = emulated_links(infrastructure)
    whole = links.route("a", "c")
    assert whole.delay_s == 0.5
    assert whole.s_per_byte == pytest.approx(0.01)
    real = links.route("b", "c")
    assert real.delay_s + 1e12 * real.s_per_byte == pytest.approx(0.0, abs=1e-9)
