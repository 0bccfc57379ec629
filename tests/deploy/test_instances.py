from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.runtime.instances import InstanceKey, instances_of
from circinus.deploy.runtime.orchestrator import changes
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


@given(
    st.dictionaries(st.integers(0, 5).map(str), st.integers(0, 2).map(str)),
    st.dictionaries(st.integers(0, 5).map(str), st.integers(0, 2).map(str)),
)
def test_doing_the_changes_gives_what_is_desired(
    wanted: dict[str, str], running: dict[str, str]
) -> None:
    start, end = changes(wanted, running)
    assert all(running.get(query) != wanted[query] for query in start)
    after = {**running, **{query: wanted[query] for query in start}}
    assert {query: plan for query, plan in after.items() if query not in end} == wanted
    if wanted == running:
        assert (start, end) == ((), ())
