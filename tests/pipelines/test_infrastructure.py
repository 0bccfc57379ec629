import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
    with_calls,
)
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Infrastructure, Link
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
def test_the_papers_presets_are_there(name: str, tiers: int) -> None:
    assert len(PRESETS[name].tiers) == tiers


def test_the_paper_s_bandwidths_are_those_of_its_appendix() -> None:
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
