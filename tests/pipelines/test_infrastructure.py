from __future__ import annotations

from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
    with_calls,
)
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.tiers import Tier

TIERS = [{"name": "a"}, {"name": "b"}]
LINKS = [{"between": ["a", "b"], "bandwidth_mbit_per_s": 8}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"infrastructure must be a mapping, got \[\]"),
        ({"name": "x"}, r"infrastructure.tiers must be given"),
        ({"name": "x", "tiers": []}, r"must have at least one tier"),
        ({"name": "x", "tiers": "a"}, r"infrastructure.tiers must be a list, got 'a'"),
        ({"name": "x", "tiers": [3]}, r"tiers\[0\] must be a mapping, got 3"),
        ({"name": "x", "tiers": [{"name": "a", "gpu": 1}]}, r"only the fields .*, got 'gpu'"),
        (
            {"name": "x", "tiers": [{"name": "a", "machines": -1}]},
            r"machines must be >= 0, got -1",
        ),
        ({"name": "x", "tiers": [{"name": "a", "machines": 1.5}]}, r"whole number, got 1.5"),
        ({"name": "x", "tiers": [{"name": "a", "machines": True}]}, r"whole number, got True"),
        ({"name": "x", "tiers": [{"name": "a", "speed_factor": 0}]}, r"speed_factor must .* > 0"),
        (
            {"name": "x", "tiers": [{"name": "a", "speed_factor": float("nan")}]},
            r"speed_factor must be finite and > 0, got nan",
        ),
        (
            {"name": "x", "tiers": [{"name": "a", "price_usd_per_hour": -2}]},
            r"price_usd_per_hour must be finite and >= 0, got -2",
        ),
        ({"name": "x", "tiers": [{"name": "a", "call_s": -1}]}, r"call_s must be finite and >= 0"),
        ({"name": "x", "tiers": [TIERS[0], TIERS[0]]}, r"tiers must not repeat, got 'a'"),
        ({"name": "x", "tiers": TIERS}, r"must connect every two tiers, got 'a, b'"),
        ({"name": "x", "tiers": TIERS, "links": [*LINKS, *LINKS]}, r"links must not repeat"),
        (
            {"name": "x", "tiers": TIERS, "links": [LINKS[0] | {"between": ["a", "z"]}]},
            r"link.between must be among a, b, got 'z'",
        ),
        (
            {"name": "x", "tiers": TIERS, "links": [LINKS[0] | {"between": ["a", "a"]}]},
            r"must name two tiers",
        ),
        (
            {"name": "x", "tiers": TIERS, "links": [LINKS[0] | {"between": ["a"]}]},
            r"links\[0\].between must name two tiers, got \['a'\]",
        ),
        (
            {"name": "x", "tiers": TIERS, "links": [LINKS[0] | {"bandwidth_mbit_per_s": 0}]},
            r"bandwidth_bytes_per_s must be finite and > 0, got 0.0",
        ),
        (
            {"name": "x", "tiers": TIERS, "links": LINKS, "origin": "z"},
            r"origin must be among a, b, got 'z'",
        ),
    ],
)
def test_a_document_that_describes_no_infrastructure_is_refused(
    document: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        infrastructure_from_dict(document)


def test_a_tier_that_says_nothing_of_calls_has_those_that_were_measured_of_workers() -> None:
    infrastructure = infrastructure_from_dict(with_calls({"name": "x", "tiers": [{"name": "a"}]}))
    assert infrastructure.tiers == (
        Tier(name="a", call_s=0.0007, call_s_per_byte=6e-9, within=1.3),
    )


@pytest.mark.parametrize("name", ["call_s", "call_s_per_byte", "call_delay_s"])
def test_a_tier_that_says_anything_of_calls_is_taken_at_its_word(name: str) -> None:
    tier = {"name": "a", name: 0, "within": 1}
    found = infrastructure_from_dict(with_calls({"name": "x", "tiers": [tier]}))
    assert found.tiers == (Tier(name="a"),)


def test_an_emulated_tier_stretches_operators_and_no_calls() -> None:
    slow = {"emulated": True, "speed_factor": 0.5}
    types = [{"name": "s", "speed_factor": 0.25}, {"name": "l", "speed_factor": 0.5}]
    tiers = [{"name": "a"}, {"name": "b", **slow}, {"name": "c", "emulated": True, "types": types}]
    links = [{"between": [tier, "a"], "bandwidth_mbit_per_s": 8} for tier in "bc"]
    document = with_calls({"name": "x", "tiers": tiers, "links": links})
    found = infrastructure_from_dict(document).tiers
    assert [each.call_s / each.speed_factor for each in found] == pytest.approx([0.0007] * 3)


def test_all_faults_of_a_document_are_told_at_once() -> None:
    bad = {"tiers": [{"machines": 1}, {"name": "b", "machines": -1}], "links": [{}]}

    with pytest.raises(InvalidInput) as caught:
        infrastructure_from_dict(bad)

    fields = [violation.field for violation in caught.value.violations]
    assert fields[:3] == [
        "infrastructure.name",
        "tiers[0].name",
        "tiers[1]: tier b.machines",
    ]


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)
def test_presets_survive_the_way_to_a_document_and_back(preset: Infrastructure) -> None:
    assert infrastructure_from_dict(infrastructure_to_dict(preset)) == preset


@pytest.mark.parametrize(
    ("name", "tiers"),
    [("one-tier", 1), ("three-tier", 3), ("four-tier", 4), ("local", 3)],
)
def test_presets_have_the_tiers_of_their_names(name: str, tiers: int) -> None:
    assert len(PRESETS[name].tiers) == tiers


def test_three_tiers_have_the_bandwidths_of_circinus_a_2() -> None:
    links = {frozenset(link.between): link for link in PRESETS["three-tier"].links}

    assert links[frozenset({"device", "mec"})].bandwidth_bytes_per_s == 50e6 / 8
    assert links[frozenset({"mec", "cloud"})].bandwidth_bytes_per_s == 400e6 / 8
    assert PRESETS["three-tier"].tier("device").dedicated


def test_a_transfer_within_a_tier_is_free_and_one_over_two_links_pays_both() -> None:
    line = Infrastructure(
        name="line",
        tiers=(Tier(name="a"), Tier(name="b"), Tier(name="c")),
        links=(
            Link(between=("b", "a"), bandwidth_bytes_per_s=100, delay_s=1),
            Link(between=("b", "c"), bandwidth_bytes_per_s=50, delay_s=2),
        ),
    )

    assert line.route("a", "a").delay_s == 0
    assert line.route("a", "c").delay_s == 3
    assert line.route("c", "a").s_per_byte == pytest.approx(1 / 100 + 1 / 50)
    assert line.origin == "a"


def test_the_route_with_the_fewest_links_is_taken() -> None:
    triangle = Infrastructure(
        name="triangle",
        tiers=(Tier(name="a"), Tier(name="b"), Tier(name="c")),
        links=(
            Link(between=("a", "b"), bandwidth_bytes_per_s=1e9),
            Link(between=("b", "c"), bandwidth_bytes_per_s=1e9),
            Link(between=("a", "c"), bandwidth_bytes_per_s=1e9, delay_s=0.5),
        ),
    )

    assert triangle.route("a", "c").delay_s == 0.5


def test_an_unknown_tier_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="tier must be among cloud, got 'edge'"):
        PRESETS["one-tier"].tier("edge")


MPS = {"kind": "mps", "count": 1, "parts": 5}
WHOLE = {"kind": "whole", "count": 4}


def document(gpus: object = None, *types: dict[str, Any], **tier: Any) -> dict[str, Any]:  # noqa: ANN401 - of any field
    given = {"gpus": gpus} if gpus is not None else {}
    kinds = {"types": list(types)} if types else {}
    return {"name": "x", "tiers": [{"name": "gpu", **given, **kinds, **tier}]}


def tier_of(gpus: object = None, *types: dict[str, Any]) -> Tier:
    return infrastructure_from_dict(document(gpus, *types)).tiers[0]


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (3, r"tiers\[0\]\.gpus must be a mapping, got 3"),
        ({}, r"tiers\[0\]\.gpus\.kind must be given"),
        ({"kind": "vgpu"}, r"gpus\.kind must be one of whole, mig, time-sliced, mps, got 'vgpu'"),
        ({"kind": "whole", "replicas": 2}, r"only the fields kind, count, .*, got 'replicas'"),
        ({"kind": "whole", "count": 1.5}, r"gpus\.count must be a whole number, got 1\.5"),
        ({"kind": "whole", "count": 0}, r"gpus\.count must be >= 1, got 0"),
        ({"kind": "whole", "count": 1001}, r"gpus\.count must be from 1 to 1000, got 1001"),
        ({"kind": "whole", "parts": 2}, r"gpus\.parts must be left out with whole: .* got 2"),
        ({"kind": "mig", "profile": "1g.5gb", "parts": 2}, r"parts must be left out with mig"),
        ({"kind": "mps"}, r"gpus\.parts must be >= 2 with mps, as the plug-in's replicas, got 1"),
        ({"kind": "time-sliced", "parts": 1}, r"gpus\.parts must be >= 2 with time-sliced"),
        ({"kind": "mps", "parts": 2, "profile": "1g.5gb"}, r"profile must be left out with mps"),
        ({"kind": "mig"}, r"gpus\.profile must be given with mig, or the resource that nodes"),
        # Fewer compute than GPU slices: the plug-in does not offer it.
        ({"kind": "mig", "profile": "1c.3g.20gb"}, r"gpus\.profile must be such as 1g\.10gb"),
        ({"kind": "whole", "resource": "gpu"}, r"gpus\.resource must be such as nvidia\.com/gpu"),
        ({"kind": "whole", "resource": "a b/gpu"}, r"gpus\.resource must be such as"),
        ({"kind": "whole", "resource": "kubernetes.io/x"}, r"gpus\.resource must be such as"),
        (MPS | {"resource": "nvidia.com/mig-1g.5gb"}, r"must not be MIG devices with mps"),
        # 7 of 0.1 would leave room for three more workers, 7 of 0.15 are more than a machine.
        (
            {"kind": "mig", "profile": "1g.10gb", "count": 7},
            r"gpus\.count must be one of 1, 2, 3, 4, 5, 6, 10, 20 places with mig, .*, got 7",
        ),
        (MPS | {"count": 2, "parts": 4}, r"gpus\.count x gpus\.parts must be one of .*, got 8"),
    ],
)
def test_gpus_that_cannot_be_are_refused_by_field_rule_and_value(
    gpus: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        infrastructure_from_dict(document(gpus))


def test_gpus_of_a_type_are_refused_where_they_stand() -> None:
    with pytest.raises(InvalidInput, match=r"tiers\[0\]\.types\[0\]\.gpus must have only the fi"):
        tier_of(None, {"name": "a", "gpus": {"kind": "whole", "gpu": 1}})


def test_a_tier_with_types_says_nothing_of_gpus_itself() -> None:
    with pytest.raises(InvalidInput, match=r"tiers\[0\]\.gpus must be left out: the types say it"):
        tier_of(WHOLE, {"name": "a", "gpus": WHOLE})


def test_types_whose_gpus_give_no_share_in_common_are_refused() -> None:
    # A part of five is a share of 0.2, a whole one of four 0.25.
    with pytest.raises(InvalidInput, match=r"tier gpu\.types must have GPUs that give a share in"):
        tier_of(None, {"name": "a", "gpus": MPS}, {"name": "b", "gpus": WHOLE})


def test_a_remote_tier_has_no_gpus() -> None:
    with pytest.raises(InvalidInput, match=r"tier gpu\.gpus must be left out"):
        Tier(name="gpu", gpus=Gpus(kind=GpuSharing.WHOLE), endpoints=_endpoints())


def _endpoints() -> Any:  # noqa: ANN401 - of a document
    remote = {"name": "api", "endpoints": [{"name": "small"}]}
    link = {"between": ["a", "api"], "bandwidth_mbit_per_s": 1}
    given = {"name": "x", "tiers": [{"name": "a"}, remote], "links": [link]}
    return infrastructure_from_dict(given).tiers[1].endpoints


@pytest.mark.parametrize(
    ("gpus", "resource", "shares", "enforced"),
    [
        ({"kind": "whole"}, "nvidia.com/gpu", [20], True),
        (WHOLE, "nvidia.com/gpu", [5, 10, 15, 20], True),
        # One of eight is no share in steps; two, four, six, eight are.
        ({"kind": "whole", "count": 8}, "nvidia.com/gpu", [5, 10, 15, 20], True),
        ({"kind": "whole", "count": 3}, "nvidia.com/gpu", [20], True),
        ({"kind": "whole", "resource": "amd.com/gpu"}, "amd.com/gpu", [20], True),
        (
            {"kind": "mig", "profile": "3g.40gb", "count": 2},
            "nvidia.com/mig-3g.40gb",
            [10],
            True,
        ),
        ({"kind": "mig", "profile": "1g.10gb+me"}, "nvidia.com/mig-1g.10gb.me", [20], True),
        ({"kind": "mig", "resource": "nvidia.com/gpu", "count": 6}, "nvidia.com/gpu", [3], True),
        (MPS, "nvidia.com/gpu.shared", [4], True),
        (MPS | {"count": 2}, "nvidia.com/gpu.shared", [2], True),
        (MPS | {"resource": "nvidia.com/gpu"}, "nvidia.com/gpu", [4], True),
        ({"kind": "time-sliced", "parts": 3}, "nvidia.com/gpu.shared", [6], False),
    ],
)
def test_gpus_give_these_shares_in_steps(
    gpus: dict[str, Any], resource: str, shares: list[int], enforced: bool
) -> None:
    found = tier_of(gpus).gpus
    assert found is not None
    assert (found.resource, list(found.steps), found.enforced) == (resource, shares, enforced)
    for step in range(1, 21):
        assert found.grants(round(step * 0.05, 9)) == (step in shares)
    assert not found.grants(shares[0] * 0.05 + 0.001)


def test_a_tier_without_gpus_gives_every_share() -> None:
    assert tier_of().share_steps is None


def test_a_tier_gives_the_shares_that_all_its_types_give() -> None:
    four = {"kind": "mps", "parts": 4}
    tier = tier_of(None, {"name": "a", "gpus": WHOLE}, {"name": "b", "gpus": four}, {"name": "c"})
    assert tier.share_steps == (5,)
    assert tier.gpus is None
    assert tier.as_type("a").share_steps == (5, 10, 15, 20)
    assert tier.as_type("c").share_steps is None


def test_types_with_the_same_gpus_are_a_tier_with_them() -> None:
    tier = tier_of(None, {"name": "a", "gpus": MPS}, {"name": "b", "gpus": MPS})
    assert tier.gpus == tier.as_type("a").gpus


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"cores": 0}, r"tier gpu\.cores must be finite and > 0, got 0"),
        ({"cores": 10_001}, r"tiers\[0\]\.cores must be from 0\.001 to 10000, got 10001"),
        ({"memory_gib": "2Gi"}, r"tiers\[0\]\.memory_gib must be a number, got '2Gi'"),
        ({"memory_gib": -1}, r"memory_gib must be finite and > 0, got -1"),
    ],
)
def test_a_machine_of_no_size_is_refused(told: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infrastructure_from_dict(document(**told))


def test_a_tier_is_as_small_as_its_smallest_type_where_all_tell() -> None:
    small, large = {"name": "a", "cores": 2.0, "memory_gib": 4.0}, {"name": "b", "cores": 8}
    tier = tier_of(None, small, large)
    assert (tier.cores, tier.memory_gib) == (2.0, None)
    assert tier.as_type("b").cores == 8.0


@pytest.mark.parametrize("gpus", [MPS, WHOLE, {"kind": "mig", "profile": "1g.10gb", "count": 5}])
def test_gpus_survive_the_way_to_a_document_and_back(gpus: dict[str, Any]) -> None:
    for given in (document(gpus), document(None, {"name": "a", "gpus": gpus}, {"name": "b"})):
        read = infrastructure_from_dict(given)
        written = infrastructure_to_dict(read)
        assert infrastructure_from_dict(written) == read
        assert "GpuSharing" not in repr(written)
