"""Remote tiers in documents: their endpoints, limits and prices, told or named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
import yaml

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.suggested import HOSTED, SuggestedEndpoint, with_suggested
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.price_list import listed_price
from circinus.pipelines.io.strict import parse_document
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier

NAMED = {"model": "gpt-4o-mini", "provider": "openai", "date": "2026-11-01"}


def document(*endpoints: object, **tier: object) -> dict[str, object]:
    """Return an infrastructure with a tier of machines and one that is called."""
    return {
        "name": "x",
        "tiers": [{"name": "cloud"}, {"name": "api", "endpoints": [*endpoints], **tier}],
        "links": [{"between": ["cloud", "api"], "bandwidth_mbit_per_s": 50}],
    }


def endpoint(**told: object) -> dict[str, object]:
    return {"name": "small", **told}


@pytest.mark.parametrize(
    ("told", "field", "message"),
    [
        (endpoint(most=3), "tiers[1].endpoints[0]", r"only the fields name, price, .*got 'most'"),
        (
            endpoint(price={"input": 3}),
            "tiers[1].endpoints[0].price",
            r"only the fields input_usd_per_million, .*got 'input'",
        ),
        (
            endpoint(limits={"rpm": 3}),
            "tiers[1].endpoints[0].limits",
            r"only the fields requests_per_minute, .*got 'rpm'",
        ),
        (endpoint(price=3), "tiers[1].endpoints[0].price", "must be a mapping, got 3"),
        ({}, "tiers[1].endpoints[0].name", "must be given"),
        (3, "tiers[1].endpoints[0]", "must be a mapping, got 3"),
        (
            endpoint(limits={"concurrent": 0}),
            "tiers[1].endpoints[0].limits: limits.concurrent",
            "must be >= 1, got 0",
        ),
        (
            endpoint(limits={"requests_per_minute": 1.5}),
            "tiers[1].endpoints[0].limits.requests_per_minute",
            "must be a whole number, got 1.5",
        ),
        (
            endpoint(price={"call_usd": -1}),
            "tiers[1].endpoints[0].price: price.call_usd",
            "must be finite and >= 0, got -1",
        ),
        (
            endpoint(price={"call_usd": 1e5}),
            "tiers[1].endpoints[0].price.call_usd",
            "must be from 0 to 10000, got 100000.0",
        ),
        (
            endpoint(price={"genai": NAMED | {"model": "gpt-0"}}),
            "tiers[1].endpoints[0].price.genai.model",
            "must be a model of openai .* got 'gpt-0'",
        ),
        (
            endpoint(price={"genai": {"model": "gpt-4o", "provider": "openai"}}),
            "tiers[1].endpoints[0].price.genai.date",
            "must be given",
        ),
        (
            endpoint(price={"genai": NAMED | {"date": 3}}),
            "tiers[1].endpoints[0].price.genai.date",
            "must be text, got 3",
        ),
        (
            endpoint(price={"genai": NAMED | {"day": "2026-11-01"}}),
            "tiers[1].endpoints[0].price.genai",
            "only the fields model, provider, date, got 'day'",
        ),
        (
            endpoint(price={"genai": NAMED, "call_usd": 1}),
            "tiers[1].endpoints[0].price.call_usd",
            "must be left out: the price is looked up, got 1",
        ),
        (
            endpoint(price={"genai": 3}),
            "tiers[1].endpoints[0].price.genai",
            "must be a mapping, got 3",
        ),
    ],
)
def test_what_is_no_endpoint_is_refused_where_it_stands(
    told: object, field: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        infrastructure_from_dict(document(told))
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize(
    "given",
    [{"machines": 3}, {"price_usd_per_hour": 1.0}, {"dedicated": True}, {"speed_factor": 2.0}],
)
def test_a_tier_that_is_called_has_no_machines(given: Mapping[str, object]) -> None:
    with pytest.raises(InvalidInput, match="its endpoints are called"):
        infrastructure_from_dict(document(endpoint(), **given))


def test_faults_of_prices_that_are_named_and_told_come_together() -> None:
    bad = document(
        endpoint(price={"genai": NAMED | {"model": "gpt-0", "date": "soon"}}),
        endpoint(name="own", timeout_s="long", price={"call_usd": "much"}),
    )
    with pytest.raises(InvalidInput) as caught:
        infrastructure_from_dict(bad)
    assert [
        violation.field.removeprefix("tiers[1].endpoints") for violation in caught.value.violations
    ] == [
        "[0].price.genai.date",
        "[0].price.genai.model",
        "[1].price.call_usd",
        "[1].timeout_s",
    ]


def test_an_endpoint_is_what_its_file_says() -> None:
    text = b"""
    name: lab
    tiers:
      - {name: cloud}
      - name: api
        endpoints:
          - name: small
            price: {input_usd_per_million: 0.15, cached_usd_per_million: 0.075,
                    output_usd_per_million: 0.6, call_usd: 0.001, usd_per_s: 0.01}
            limits: {requests_per_minute: 500, tokens_per_minute: 200000, concurrent: 20}
            most_input_tokens: 8000
            most_output_tokens: 1000
            timeout_s: 30
    links: [{between: [cloud, api], bandwidth_mbit_per_s: 50}]
    """
    found = infrastructure_from_dict(parse_document(text))
    assert found.endpoints == (
        Endpoint(
            name="small",
            price=CallPrice(
                input_usd_per_million=0.15,
                cached_usd_per_million=0.075,
                output_usd_per_million=0.6,
                call_usd=0.001,
                usd_per_s=0.01,
            ),
            limits=RateLimits(requests_per_minute=500, tokens_per_minute=200_000, concurrent=20),
            most_input_tokens=8000,
            most_output_tokens=1000,
            timeout_s=30,
        ),
    )


def test_a_named_price_is_kept_as_it_was_found_with_the_model_s_context_as_bounds() -> None:
    found = infrastructure_from_dict(document(endpoint(price={"genai": NAMED})))
    (kept,) = found.endpoints
    listed = listed_price(NAMED["model"], NAMED["provider"], NAMED["date"])
    assert kept.price == listed.price
    assert (kept.most_input_tokens, kept.most_output_tokens) == (128_000, 128_000)
    stored = infrastructure_to_dict(found)
    assert "genai" not in json.dumps(stored).replace("genai-prices", "")
    assert infrastructure_from_dict(stored) == found


def test_bounds_that_are_told_go_before_the_model_s_context() -> None:
    told = endpoint(price={"genai": NAMED}, most_output_tokens=500)
    (kept,) = infrastructure_from_dict(document(told)).endpoints
    assert (kept.most_input_tokens, kept.most_output_tokens) == (128_000, 500)


@pytest.mark.parametrize(
    "told",
    [
        endpoint(),
        endpoint(limits={"concurrent": 2}, most_input_tokens=10),
        endpoint(price={"usd_per_s": 0.5, "source": "our contract of May"}, timeout_s=2.5),
    ],
)
def test_a_document_of_a_remote_tier_survives_the_way_and_yaml(told: object) -> None:
    found = infrastructure_from_dict(document(told))
    stored = infrastructure_to_dict(found)
    assert infrastructure_from_dict(stored) == found
    assert infrastructure_from_dict(yaml.safe_load(yaml.safe_dump(stored))) == found
    tiers = stored["tiers"]
    assert isinstance(tiers, list)
    assert "endpoints" not in tiers[0]
    assert [*tiers[1]] == ["name", "endpoints"]


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
