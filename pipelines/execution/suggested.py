"""Endpoints that a pipeline calls and an infrastructure lacks: what to add, or added for a try.

A chain states which models it calls, not what they cost. The one rule: a price is looked up where
the model is its provider's own, with the day that it is of, and never guessed: else the user
is asked for it, with the lines to add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.price_list import ListedPrice, listed_price, provider_at
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier

HOSTED = "hosted"
"""Name of the tier that is added for a try."""
_LINK_BYTES_PER_S = 125e6
"""Of the link to it, 1 Gbit/s: what the network takes is measured with each call."""
_LISTED_AS = {
    "google_genai": "google",
    "google_vertexai": "google",
    "mistralai": "mistral",
    "amazon_bedrock": "aws",
    "xai": "x-ai",
}
"""LangChain's name of a provider -> that in the list of prices, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedEndpoint:
    """What a pipeline knows of an endpoint that it calls."""

    name: str  # of the endpoint
    model: str = ""  # as its provider calls it; empty: not known
    provider: str = ""  # as LangChain calls it; empty: not known
    address: str = ""  # where it is called; empty: where its provider has it
    most_input_tokens: int | None = None  # of one call; None: not known
    most_output_tokens: int | None = None  # that it is asked for; None: not bounded

    def listed(self, day: str) -> tuple[str, ListedPrice] | None:
        """Return the provider and what it takes on a day; None where that is not listed."""
        known = _LISTED_AS.get(self.provider, self.provider)
        provider = provider_at(self.address) if self.address else known
        if not provider or not self.model:
            return None
        try:
            return provider, listed_price(self.model, provider, day, self.most_input_tokens)
        except InvalidInput:
            return None

    def line(self, day: str) -> str:
        """Return it as an infrastructure's file has it; what only its user knows is `?`."""
        price_of = self.listed(day)
        if price_of is None:
            price = "input_usd_per_million: ?, output_usd_per_million: ?"
        else:
            price = f"genai: {{model: {self.model}, provider: {price_of[0]}, date: {day}}}"
        bounds = "".join(
            f", {name}: {value}"
            for name, value in (
                ("most_input_tokens", self.most_input_tokens),
                ("most_output_tokens", self.most_output_tokens),
            )
            if value is not None or (price_of is None and name == "most_output_tokens")
        ).replace("None", "?")
        return f"{{name: {self.name}, price: {{{price}}}{bounds}}}"


def with_suggested(
    infrastructure: Infrastructure,
    called: Sequence[str],
    suggested: Sequence[SuggestedEndpoint],
    day: str,
) -> tuple[Infrastructure, tuple[str, ...]]:
    """Return an infrastructure that has all endpoints that are called, and remarks for people.

    Where it has no remote tier and all prices of the day, `YYYY-MM-DD`, are listed, one is added;
    InvalidInput with the lines to add otherwise, and if an endpoint is bounded by fewer tokens
    than are asked of it: less money would be reserved for a call than it may cost.
    """
    there = {endpoint.name: endpoint for endpoint in infrastructure.endpoints}
    lacking = [name for name in dict.fromkeys(called) if name not in there]
    by_name = {one.name: one for one in suggested}
    if not lacking:
        known = [by_name[name] for name in called if name in by_name]
        return infrastructure, _unbounded(known, there)
    wanted = [by_name.get(name, SuggestedEndpoint(name=name)) for name in lacking]
    prices = [one.listed(day) for one in wanted]
    if any(tier.remote for tier in infrastructure.tiers) or None in prices:
        lines = ", ".join(one.line(day) for one in wanted)
        rule = (
            "must have what the pipeline calls: add to a remote tier of its file, "
            f"`- {{name: {HOSTED}, endpoints: [{lines}]}}`, and link that"
        )
        raise InvalidInput.of("infrastructure.endpoints", rule, ", ".join(lacking))
    endpoints = [_endpoint(one, each[1]) for one, each in zip(wanted, prices, strict=True) if each]
    hosted = Tier(name=HOSTED, endpoints=tuple(endpoints))
    # From the last tier, the cloud: a link from each would be a short cut between all of them.
    ends = (infrastructure.tiers[-1].name, HOSTED)
    link = Link(between=ends, bandwidth_bytes_per_s=_LINK_BYTES_PER_S)
    more = replace(
        infrastructure,
        tiers=(*infrastructure.tiers, hosted),
        links=(*infrastructure.links, link),
    )
    return more, tuple(f"{one.name} was added: {_words(one)}" for one in endpoints)


def _unbounded(
    suggested: Sequence[SuggestedEndpoint], there: Mapping[str, Endpoint]
) -> tuple[str, ...]:
    """Return the endpoints that may write more than they are bounded by, as far as is known."""
    notes = []
    for one in suggested:
        most, requested = there[one.name].most_output_tokens, one.most_output_tokens
        if most is not None and requested is None:
            notes.append(
                f"{one.name} is bounded by {most} output tokens in the infrastructure alone: the "
                "chain does not ask for so few, and what is kept back for a call may be too little"
            )
        elif most is not None and requested is not None:
            rule = f"must be at least {requested}, which the chain asks for"
            checks.require(
                requested <= most, f"endpoint {one.name}.most_output_tokens", rule, most
            )
    return tuple(dict.fromkeys(notes))


def _endpoint(one: SuggestedEndpoint, listed: ListedPrice) -> Endpoint:
    context = listed.context_tokens
    return Endpoint(
        name=one.name,
        price=listed.price,
        most_input_tokens=one.most_input_tokens or context,
        most_output_tokens=one.most_output_tokens or context,
    )


def _words(endpoint: Endpoint) -> str:
    price = endpoint.price
    return (
        f"${price.input_usd_per_million:g} per million tokens read, "
        f"${price.output_usd_per_million:g} written ({price.source}), without rate limits"
    )
