"""Outputs of a route's units that somebody else runs, each held against the first one's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from circinus.api.schemas.routes import RouteInput, VerifiedUnitView
from circinus.deploy.kubernetes.routing.targets import service_url
from circinus.deploy.runtime.endpoint_proofs import EndpointProbes, endpoint_proofs
from circinus.deploy.runtime.endpoints import check_url
from circinus.deploy.runtime.probing import UnitProof
from circinus.pipelines import checks


def unit_urls(asked: RouteInput, named: Mapping[str, str]) -> dict[str, str]:
    """Return unit -> where it answers, in the route's order: as `named`, else its Service.

    InvalidInput if a unit is nowhere, `named` has one that there is none of, or a URL is none.
    """
    units = [unit.name for unit in asked.route.units]  # no two of a name
    for name, url in named.items():
        checks.among("--url", name, units)
        check_url(f"--url {name}", url)
    found = _services(asked) | dict(named)
    for name in units:
        rule = f"must be given, or --url {name}=URL"
        checks.require(name in found, f"unit {name}.kubernetes", rule, None)
    return {name: found[name] for name in units}


def verified(urls: Mapping[str, str], probes: EndpointProbes) -> list[VerifiedUnitView]:
    """Return what probes say of units by URL, all asked at the same time."""
    proofs = asyncio.run(endpoint_proofs(urls, probes))
    return [_view(name, urls[name], proof) for name, proof in proofs.items()]


def _services(asked: RouteInput) -> dict[str, str]:
    place = asked.kubernetes
    if place is None:
        return {}
    places = {unit.name: unit.kubernetes for unit in asked.units}
    return {
        name: service_url(place.namespace, at.service, at.port, place.path)
        for name, at in places.items()
        if at is not None
    }


def _view(name: str, url: str, proof: UnitProof) -> VerifiedUnitView:
    return VerifiedUnitView.of(
        proof,
        name=name,
        url=url,
        difference=None if proof.score is None else proof.score - proof.reference_score,
    )
