"""Endpoints that a pipeline calls and an infrastructure lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.suggested import HOSTED, SuggestedEndpoint, with_suggested
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.strict import parse_document
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier

DAY = "2026-01-15"
MINI = SuggestedEndpoint(
    name="mini",
    model="gpt-4o-mini",
    provider="openai",
    most_input_tokens=128_000,
    most_output_tokens=200,
)
OWN = SuggestedEndpoint(name="own", model="gpt-4o-mini", provider="openai", address="http://here/")
ONE_TIER = PRESETS["one-tier"]


def test_what_nobody_lists_is_asked_for_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"endpoints: \[\{name: own, .*\?.*got 'own, other'"):
        with_suggested(ONE_TIER, ("own", "other"), (OWN,), DAY)


def test_one_that_is_not_listed_keeps_others_from_being_added() -> None:
    with pytest.raises(InvalidInput, match=r"name: mini, price: \{genai: .*name: other"):
        with_suggested(ONE_TIER, ("mini", "other"), (MINI,), DAY)


def test_a_file_that_has_endpoints_is_not_added_to() -> None:
    remote = Tier(name="api", endpoints=(Endpoint(name="there"),))
    link = Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e6)
    tiers = Infrastructure(name="lab", tiers=(*ONE_TIER.tiers, remote), links=(link,))

    assert with_suggested(tiers, ("there",), (), DAY) == (tiers, ())
    with pytest.raises(InvalidInput, match="got 'mini'"):
        with_suggested(tiers, ("there", "mini"), (MINI,), DAY)


def _bounded(most: int | None) -> Infrastructure:
    endpoint = Endpoint(name="mini", most_output_tokens=most)
    link = Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e6)
    remote = Tier(name="api", endpoints=(endpoint,))
    return Infrastructure(name="lab", tiers=(*ONE_TIER.tiers, remote), links=(link,))


def test_an_endpoint_bounded_by_less_than_is_asked_of_it_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"most_output_tokens must be at least 200.*got 199"):
        with_suggested(_bounded(199), ("mini",), (MINI,), DAY)
    for most in (200, None):
        assert with_suggested(_bounded(most), ("mini",), (MINI,), DAY)[1] == ()


def test_a_bound_that_the_chain_does_not_ask_for_is_told() -> None:
    free = replace(MINI, most_output_tokens=None)
    _, told = with_suggested(_bounded(20), ("mini", "mini"), (free,), DAY)

    assert len(told) == 1
    assert told[0].startswith("mini is bounded by 20 output tokens in the infrastructure alone")


def test_the_lines_to_add_are_those_of_a_file() -> None:
    text = f"""
name: lab
tiers:
  - {{name: cloud, machines: 1}}
  - {{name: {HOSTED}, endpoints: [{MINI.line(DAY)}]}}
links:
  - {{between: [cloud, {HOSTED}], bandwidth_mbit_per_s: 1000}}
"""
    read = infrastructure_from_dict(parse_document(text.encode()))
    added, _ = with_suggested(ONE_TIER, ("mini",), (MINI,), DAY)
    assert read.endpoints == added.endpoints


def test_a_pipeline_that_calls_nothing_changes_nothing() -> None:
    assert with_suggested(ONE_TIER, (), (MINI,), DAY) == (ONE_TIER, ())


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_tier_is_added_that_is_no_short_cut(preset: str) -> None:
    before = PRESETS[preset]
    after, told = with_suggested(before, ("mini", "mini"), (MINI,), DAY)

    assert after.tiers[-1].remote
    (endpoint,) = after.endpoints
    assert (endpoint.most_input_tokens, endpoint.most_output_tokens) == (128_000, 200)
    assert endpoint.price.input_usd_per_million == 0.15
    assert endpoint.price.output_usd_per_million == 0.6
    assert len(told) == 1
    assert told[0].startswith("mini was added: $0.15 per million tokens read, $0.6 written (genai")
    assert told[0].endswith(f"openai gpt-4o-mini on {DAY}), without rate limits")
    for a in before.tiers:
        for b in before.tiers:
            assert after.route(a.name, b.name) == before.route(a.name, b.name)


def test_a_model_at_another_provider_s_address_is_priced_there() -> None:
    routed = SuggestedEndpoint(
        name="mini",
        model="openai/gpt-4o-mini",
        provider="openai",
        address="https://openrouter.ai/api/v1",
    )

    assert routed.listed(DAY) is not None
    assert "provider: openrouter" in routed.line(DAY)
