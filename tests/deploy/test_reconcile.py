from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.instances import InstanceKey, InstanceSpec
from deploy.reconcile import changes, instances_of
from pipelines.configuration import Configuration
from pipelines.infrastructure import Tier
from tests.deploy.serving import LOCAL, desired, plan, tiny


def test_an_instance_per_tier_and_replica_has_the_demands_share() -> None:
    chosen = plan(
        "fork",
        {"left": "edge", "right": "edge", "join": "cloud"},
        shares={"edge": 0.4, "cloud": 0.5},
        replicas={"cloud": 2},
    )
    found = instances_of("q", desired("fork", chosen), tiny("fork").graph, LOCAL)
    # left and right can run at once: their slice is twice the share of one.
    assert {(k.tier, k.replica): spec.share for k, spec in found.items()} == {
        ("edge", 0): 0.8,
        ("cloud", 0): 0.5,
        ("cloud", 1): 0.5,
    }
    edge = found[InstanceKey("q", chosen.id, "edge", 0)]
    assert [operator.name for operator in edge.operators] == ["left", "right"]


def spec(number: int) -> InstanceSpec:
    return InstanceSpec(
        key=InstanceKey(f"q{number}", "p", "cloud", 0),
        pipeline_reference="x",
        operators=(),
        configuration=Configuration(()),
        tier=Tier(name="cloud"),
        share=1.0,
    )


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_doing_the_changes_gives_what_is_desired(wanted: set[int], running: set[int]) -> None:
    goal = {spec(i).key: spec(i) for i in wanted}
    now = {spec(i).key for i in running}
    todo = changes(goal, now)
    assert {s.key for s in todo.start}.isdisjoint(now)
    assert (now | {s.key for s in todo.start}) - set(todo.stop) == goal.keys()
    if wanted == running:
        assert (todo.start, todo.stop) == ((), ())
