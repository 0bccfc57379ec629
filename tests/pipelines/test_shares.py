"""GPUs of machines in infrastructure files, and the shares that they give."""

from __future__ import annotations

from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.tiers import Tier

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
