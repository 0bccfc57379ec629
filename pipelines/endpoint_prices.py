"""Prices of endpoints that a document names instead of telling, by model, provider and day.

price: {genai: {model: gpt-4o-mini, provider: openai, date: 2026-11-01}}

They are looked up when the document is read and kept as they were found, with where from: what is
stored needs no list of prices any more, and stays as it was when a list is corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from circinus.pipelines.errors import Fault, InvalidInput
from circinus.pipelines.price_list import listed_price

_NAMED = ("model", "provider", "date")
_BOUNDS = ("most_input_tokens", "most_output_tokens")


def with_prices(document: object) -> tuple[object, list[Fault]]:
    """Return a document of an infrastructure with the prices that it names, and what is wrong.

    Bounds on tokens that are left out are the model's context. What is no such document stays as
    it is; of a price that cannot be looked up nothing is told.
    """
    faults: list[Fault] = []
    if not isinstance(document, Mapping) or not _is_list(document.get("tiers")):
        return document, faults
    tiers = []
    for i, tier in enumerate(document["tiers"]):
        if isinstance(tier, Mapping) and _is_list(tier.get("endpoints")):
            where = f"tiers[{i}].endpoints"
            told = enumerate(tier["endpoints"])
            endpoints = [_priced(each, f"{where}[{k}].price", faults) for k, each in told]
            tier = {**tier, "endpoints": endpoints}
        tiers.append(tier)
    return {**document, "tiers": tiers}, faults


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _priced(endpoint: object, where: str, faults: list[Fault]) -> object:
    told = endpoint.get("price") if isinstance(endpoint, Mapping) else None
    if not isinstance(endpoint, Mapping) or not isinstance(told, Mapping) or "genai" not in told:
        return endpoint
    found = [*_malformed(told, where)]
    price: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    if not found:
        named = told["genai"]
        most = endpoint.get("most_input_tokens")
        most = most if isinstance(most, int) and most >= 1 else None
        try:
            listed = listed_price(named["model"], named["provider"], named["date"], most)
        except InvalidInput as error:
            found = [Fault(f"{where}.genai.{f.field}", f.rule, f.value) for f in error.faults]
        else:
            price = asdict(listed.price)
            bounds = dict.fromkeys(_BOUNDS, listed.context_tokens)
    faults += found
    given = {name: value for name, value in endpoint.items() if value is not None}
    return {**bounds, **given, "price": price}


def _malformed(told: Mapping[str, Any], where: str) -> list[Fault]:
    """Return what is wrong with the form of a price that is to be looked up."""
    rule = "must be left out: the price is looked up"
    faults = [Fault.of(f"{where}.{name}", rule, told[name]) for name in told if name != "genai"]
    named = told["genai"]
    if not isinstance(named, Mapping):
        return [*faults, Fault.of(f"{where}.genai", "must be a mapping", named)]
    rule = f"must have only the fields {', '.join(_NAMED)}"
    faults += [Fault.of(f"{where}.genai", rule, name) for name in named if name not in _NAMED]
    for name in _NAMED:
        if name not in named:
            faults.append(Fault.of(f"{where}.genai.{name}", "must be given", None))
        elif not isinstance(named[name], str):
            faults.append(Fault.of(f"{where}.genai.{name}", "must be text", named[name]))
    return faults
