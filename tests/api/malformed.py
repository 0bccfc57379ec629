"""Malformed queries, bodies and infrastructures, with what the answer must name.

`DOCUMENTS` are wrong as a query file and as an HTTP body alike; the others only make sense as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import yaml


class Wrong(NamedTuple):
    """Something malformed.

    Attributes:
        name: Of the case.
        content: A document, or text.
        field: That the answer must name.
        rule: Part of the rule that it must state.
        value: Part of the value that it must quote.
    """

    name: str
    content: object
    field: str
    rule: str
    value: str


def query(**changes: object) -> dict[str, object]:
    """Return a valid query with some of its fields replaced."""
    valid: dict[str, object] = {
        "pipeline": "digits",
        "data": {"examples": 20, "seed": 1},
        "slo": {"accuracy": 0.8, "latency_s": 0.5},
    }
    return valid | changes


def as_yaml(document: object) -> str:
    """Return a document as YAML, spelled out."""
    text: str = yaml.safe_dump(json.loads(json.dumps(document)))
    return text


def _without(field: str) -> dict[str, object]:
    return {name: value for name, value in query().items() if name != field}


def _slo(**changes: object) -> dict[str, object]:
    return query(slo={"accuracy": 0.8, "latency_s": 0.5} | changes)


def _limits(**limits: object) -> dict[str, object]:
    return query(limits=limits)


_NAME = "must be a name"
_KNOWN = "must be one of the known fields"
DOCUMENTS: tuple[Wrong, ...] = (
    Wrong("no pipeline", _without("pipeline"), "pipeline", "must be given", "nothing"),
    Wrong("no data", _without("data"), "data", "must be given", "nothing"),
    Wrong("no slo", _without("slo"), "slo", "must be given", "nothing"),
    Wrong("no accuracy", query(slo={"latency_s": 1}), "slo.accuracy", "must be given", "nothing"),
    Wrong("no latency", query(slo={"accuracy": 1}), "slo.latency_s", "must be given", "nothing"),
    Wrong("empty", {}, "pipeline", "must be given", "nothing"),
    Wrong("unknown field", query(urgency=3), "urgency", _KNOWN, "3"),
    Wrong("priority too high", query(priority=10), "priority", "must be <= 9", "10"),
    Wrong("negative priority", query(priority=-1), "priority", "must be >= 0", "-1"),
    Wrong("half a priority", query(priority=0.5), "priority", "must be a whole number", "0.5"),
    Wrong("tenant with a space", query(tenant="a b"), "tenant", "must start with a letter", "a b"),
    Wrong("tenant as number", query(tenant=7), "tenant", "must be text", "7"),
    Wrong("knobs", query(knobs={"sampler": {"zoom": 2}}), "knobs", _KNOWN, "zoom"),
    Wrong("unknown nested field", _slo(acuracy=1), "slo.acuracy", _KNOWN, "1"),
    Wrong("unknown limit", _limits(profiling_h=1), "limits.profiling_h", _KNOWN, "1"),
    Wrong("infrastructure inside", query(infrastructure="moon"), "infrastructure", _KNOWN, "moon"),
    Wrong("pipeline as number", query(pipeline=7), "pipeline", "must be text", "7"),
    Wrong("pipeline empty", query(pipeline=""), "pipeline", _NAME, "''"),
    Wrong("pipeline with blanks", query(pipeline="a b"), "pipeline", _NAME, "a b"),
    Wrong("pipeline as path", query(pipeline="../digits"), "pipeline", _NAME, "../digits"),
    Wrong("pipeline too long", query(pipeline="p" * 500), "pipeline", "at most 190", "characters"),
    Wrong("unknown pipeline", query(pipeline="cats"), "pipeline", "must be registered", "cats"),
    Wrong("data as list", query(data=[1, 2]), "data", "must be a mapping", "[1, 2]"),
    Wrong("data as null", query(data=None), "data", "must be a mapping", "None"),
    Wrong("data empty", query(data={}), "data", "must have exactly one of", "{}"),
    Wrong(
        "two sources of data",
        query(data={"examples": 5, "folder": "clips"}),
        "data",
        "must have exactly one of",
        "clips",
    ),
    Wrong("no examples", query(data={"examples": 0}), "data.examples", "must be >= 1", "0"),
    Wrong(
        "too many examples",
        query(data={"examples": 10**6}),
        "data.examples",
        "must be <= 100000",
        "1000000",
    ),
    Wrong(
        "half an example", query(data={"examples": 1.5}), "data.examples", "whole number", "1.5"
    ),
    Wrong("examples as text", query(data={"examples": "9"}), "data.examples", "whole", "'9'"),
    Wrong("examples as bool", query(data={"examples": True}), "data.examples", "whole", "True"),
    Wrong("negative seed", query(seed=-1), "seed", "must be >= 0", "-1"),
    Wrong("huge seed", query(seed=2**63), "seed", "must be <= 9223372036854775807", str(2**63)),
    Wrong(
        "seed without examples",
        query(data={"folder": "clips", "seed": 3}),
        "data.seed",
        "must be left out without examples",
        "3",
    ),
    Wrong("accuracy above 1", _slo(accuracy=1.2), "slo.accuracy", "must be <= 1", "1.2"),
    Wrong("negative accuracy", _slo(accuracy=-0.1), "slo.accuracy", "must be >= 0", "-0.1"),
    Wrong("accuracy as bool", _slo(accuracy=True), "slo.accuracy", "finite number", "True"),
    Wrong("accuracy as text", _slo(accuracy="90 %"), "slo.accuracy", "finite number", "90 %"),
    Wrong("accuracy null", _slo(accuracy=None), "slo.accuracy", "finite number", "None"),
    Wrong("latency 0", _slo(latency_s=0), "slo.latency_s", "must be >= 1e-06", "0"),
    Wrong("negative latency", _slo(latency_s=-2), "slo.latency_s", "must be >= 1e-06", "-2"),
    Wrong(
        "unknown statistic",
        _slo(latency_statistic="p42"),
        "slo.latency_statistic",
        "must be one of 'mean', 'p50'",
        "p42",
    ),
    Wrong(
        "negative cost", _slo(cost_usd_per_hour=-1), "slo.cost_usd_per_hour", "must be >= 0", "-1"
    ),
    Wrong(
        "throughput 0",
        query(slo={"accuracy": 0.8, "throughput_per_s": 0}),
        "slo.throughput_per_s",
        "must be >= 1e-06",
        "0",
    ),
    Wrong(
        "throughput and rate",
        _slo(throughput_per_s=3) | {"request_rate_per_s": 2},
        "request_rate_per_s",
        "must be left out with slo.throughput_per_s",
        "2",
    ),
    Wrong(
        "device speed 0", query(device={"speed_factor": 0}), "device.speed_factor", ">= 1e-06", "0"
    ),
    Wrong(
        "device bandwidth as text",
        query(device={"bandwidth_mbit_per_s": "fast"}),
        "device.bandwidth_mbit_per_s",
        "finite number",
        "fast",
    ),
    Wrong("device name as number", query(device={"name": 3}), "device.name", "text", "3"),
    Wrong("device unknown", query(device={"speed": 2}), "device.speed", _KNOWN, "2"),
    *(
        Wrong(f"restriction {name}", query(restrictions=restrictions), field, rule, value)
        for name, restrictions, field, rule, value in (
            ("as list", [], "restrictions", "must be a mapping", "[]"),
            ("unknown", {"machines": 1}, "restrictions.machines", _KNOWN, "1"),
            (
                "of an unknown operator",
                {"tiers": {"nobody": {"only": ["cloud"]}}},
                "restrictions.tiers",
                "must be among",
                "nobody",
            ),
            (
                "to an unknown tier",
                {"tiers": {"sampler": {"only": ["moon"]}}},
                "restrictions.tiers.sampler.only",
                "must be among device, edge, cloud",
                "moon",
            ),
            (
                "of a tier that says nothing",
                {"tiers": {"sampler": {}}},
                "restrictions.tiers.sampler",
                "must say only or never",
                "{}",
            ),
            (
                "to no tier",
                {"tiers": {"sampler": {"only": []}}},
                "restrictions.tiers.sampler.only",
                "must have at least 1 items",
                "[]",
            ),
            (
                "away from the device with everything on it",
                {"tiers": {"sampler": {"never": ["device"]}}, "stays_on_device": "everything"},
                "restrictions.tiers.sampler",
                "must leave every operator a tier",
                "[]",
            ),
            (
                "what stays",
                {"stays_on_device": "secrets"},
                "restrictions.stays_on_device",
                "must be one of 'nothing', 'input' or 'everything'",
                "secrets",
            ),
            (
                "of an unknown knob",
                {"knobs": {"sampler": {"colour": {"never": [1]}}}},
                "restrictions.knobs.sampler",
                "must be among",
                "colour",
            ),
            (
                "to an unknown value",
                {"knobs": {"sampler": {"stride": {"only": [-7]}}}},
                "restrictions.knobs.sampler.stride.only",
                "must be among",
                "-7",
            ),
            (
                "to a value that is none",
                {"knobs": {"sampler": {"stride": {"only": [[1]]}}}},
                "restrictions.knobs.sampler.stride.only[0]",
                "must be text, a finite number or a truth value",
                "[1]",
            ),
        )
    ),
    *(
        Wrong(f"planning {name}", query(planning=planning), field, rule, value)
        for name, planning, field, rule, value in (
            ("as text", "published", "planning", "must be a mapping", "published"),
            (
                "by an unknown method",
                {"method": "best"},
                "planning.method",
                "must be among default, published",
                "best",
            ),
            (
                "by an unknown strategy",
                {"strategy": "guess"},
                "planning.strategy",
                "must be among multi_fidelity, cmbo, random, exhaustive",
                "guess",
            ),
            (
                "until an unknown rule stops it",
                {"strategy": "cmbo", "stopping": "soon"},
                "planning.stopping",
                "must be among betting, t_test",
                "soon",
            ),
            (
                "in an unknown order",
                {"sampling": "worst"},
                "planning.sampling",
                "must be among random, stratified",
                "worst",
            ),
            ("in order 7", {"sampling": 7}, "planning.sampling", "must be text", "7"),
            (
                "with a scheduling policy",
                {"scheduling": "fcfs"},
                "planning.scheduling",
                _KNOWN,
                "fcfs",
            ),
            ("with a dispatch policy", {"dispatch": "drs"}, "planning.dispatch", _KNOWN, "drs"),
            (
                "with a rule where the strategy decides",
                {"stopping": "betting"},
                "planning.stopping",
                "must be left out with the strategy multi_fidelity",
                "betting",
            ),
            (
                "with betting on strata",
                {"strategy": "random", "stopping": "betting", "sampling": "stratified"},
                "planning.sampling",
                "must be random with the stopping rule betting",
                "stratified",
            ),
            (
                "with betting in the published order",
                {"method": "published", "stopping": "betting"},
                "planning.sampling",
                "must be random with the stopping rule betting",
                "stratified",
            ),
        )
    ),
    Wrong(
        "scheduling policy", query(scheduling_policy="fcfs"), "scheduling_policy", _KNOWN, "fcfs"
    ),
    Wrong("slo as number", query(slo=0.9), "slo", "must be a mapping", "0.9"),
    Wrong("weight 0", query(weight=0), "weight", "must be >= 0.001", "0"),
    Wrong("weight as list", query(weight=[1]), "weight", "finite number", "[1]"),
    Wrong("rate 0", query(request_rate_per_s=0), "request_rate_per_s", "must be >= 1e-06", "0"),
    Wrong("rate too high", query(request_rate_per_s=1e9), "request_rate_per_s", "<= 1000000", "1"),
    Wrong("negative duration", query(duration_s=-5), "duration_s", "must be >= 0.001", "-5"),
    Wrong("no budget", _limits(profiling_s=0), "limits.profiling_s", "must be >= 0.001", "0"),
    Wrong("negative money", _limits(profiling_usd=-1), "limits.profiling_usd", ">= 0", "-1"),
    Wrong("no time", _limits(response_s=0), "limits.response_s", "must be >= 0.001", "0"),
    Wrong("no configurations", _limits(configurations=0), "limits.configurations", ">= 1", "0"),
    Wrong("limits as text", query(limits="few"), "limits", "must be a mapping", "few"),
)

_VALID = "pipeline: digits\ndata: {examples: 20}\nslo: {accuracy: 0.8, latency_s: 0.5}\n"
_SLO = "pipeline: digits\ndata: {examples: 20}\n"
_BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\n"
    "b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
)
TEXTS: tuple[Wrong, ...] = (
    Wrong("empty file", "", "file", "must hold a mapping", "None"),
    Wrong("only a comment", "# later\n", "file", "must hold a mapping", "None"),
    Wrong("top-level list", "- pipeline: digits\n", "file", "must hold a mapping", "digits"),
    Wrong("top-level text", "digits", "file", "must hold a mapping", "'digits'"),
    Wrong("not YAML", "pipeline: [digits\n", "file", "must be YAML", "line 2"),
    Wrong("tabs", "slo:\n\taccuracy: 1\n", "file", "must be YAML", "line 2"),
    Wrong("not text", b"\xff\xfe\x00p", "file", "must be UTF-8 text", "\\xff"),
    Wrong("NUL", "pipeline: dig\0its\n", "file", "must be YAML", "#x0000"),
    Wrong("duplicate key", _VALID + "pipeline: cats\n", "pipeline", "must not repeat", "line 4"),
    Wrong(
        "duplicate nested key",
        _SLO + "slo: {accuracy: 0.8, accuracy: 0.9, latency_s: 1}\n",
        "accuracy",
        "must not repeat",
        "line 3",
    ),
    Wrong("alias bomb", _BOMB, "file", "must not use aliases", "line 2"),
    Wrong("object tag", "a: !!python/object/apply:os.getcwd []", "file", "tags", "line 1"),
    Wrong("deep", "a: " + "[" * 5000, "file", "must nest at most 32 deep", "line 1"),
    Wrong("two documents", _VALID + "---\n" + _VALID, "file", "must hold one document", "line"),
    Wrong("number as key", _VALID + "1: 2\n", "key on line 4", "must be text", "1"),
    Wrong("huge file", _VALID + "#" * 2**20, "file", "must have at most 1048576 bytes", "more"),
    Wrong("huge integer", _VALID + "seed: 1" + "0" * 400, "number", "must be below 2^64", "1000"),
    Wrong(
        "NaN",
        _SLO + "slo: {accuracy: .nan, latency_s: 1}",
        "slo.accuracy",
        "must be finite",
        "nan",
    ),
    Wrong(
        "infinite", _SLO + "slo: {accuracy: 1, latency_s: .inf}", "slo.latency_s", "finite", "inf"
    ),
    Wrong("overflow", _VALID + "weight: 1e999\n", "weight", "must be finite", "inf"),
    Wrong("sexagesimal", _VALID + "duration_s: 1:30\n", "duration_s", "finite number", "1:30"),
    Wrong("yes", _VALID + "weight: yes\n", "weight", "finite number", "yes"),
)
"""Wrong as YAML text."""

_JSON = '{"pipeline": "digits", "data": {"examples": 20}, "slo": {"accuracy": 1, "latency_s": %s}}'
BODIES: tuple[Wrong, ...] = (
    Wrong("no JSON", b"pipeline: digits", "body", "must be JSON", "pipeline"),
    Wrong("torn JSON", b'{"pipeline": ', "body", "must be JSON", ""),
    Wrong("list", b"[]", "the whole", "must be a mapping", "[]"),
    Wrong("null", b"null", "", "must", ""),
    Wrong("NaN", (_JSON % "NaN").encode(), "body", "finite", "NaN"),
    Wrong("infinite", (_JSON % "-Infinity").encode(), "body", "finite", "-Infinity"),
    Wrong("overflow", (_JSON % "1e999").encode(), "body", "finite", "1e999"),
    Wrong("duplicate key", b'{"seed": 1, "seed": 2}', "body", "every field once", "seed"),
    Wrong("not UTF-8", b'{"pipeline": "\xff"}', "body", "must be UTF-8", "xff"),
    Wrong("deep", b"[" * 4000 + b"]" * 4000, "body", "must nest at most", "deeper"),
    Wrong("deeper", b"[" * 50_000, "body", "must have at most 5000 values", "50001"),
    Wrong("half a pair", b'{"pipeline": "\\ud800"}', "body", "must have text that", "ud800"),
    Wrong("huge integer", (_JSON % ("9" * 5000)).encode(), "body", "numbers of fewer", "digit"),
)
"""Wrong as an HTTP body."""

HTTP_ONLY: tuple[Wrong, ...] = (
    Wrong(
        "code of the client",
        query(pipeline="os:getcwd"),
        "pipeline",
        "must start with a letter",
        "os:getcwd",
    ),
    Wrong("folder", query(data={"folder": "/etc"}), "data.folder", "must be left out", "/etc"),
    Wrong("jsonl", query(data={"jsonl": "a.jsonl"}), "data.jsonl", "must be left out", "a.jsonl"),
)
"""Right for the command line, refused by a service."""


def _infrastructure(tiers: list[dict[str, object]], links: list[dict[str, object]]) -> object:
    return {"name": "lab", "tiers": tiers, "links": links}


_DEVICE: Mapping[str, object] = {"name": "device", "dedicated": True}
_CLOUD: Mapping[str, object] = {"name": "cloud", "price_usd_per_hour": 2.5}
_LINK: Mapping[str, object] = {"between": ["device", "cloud"], "bandwidth_mbit_per_s": 50}


def _tier(**changes: object) -> object:
    return _infrastructure([dict(_DEVICE), dict(_CLOUD) | changes], [dict(_LINK)])


def _link(**changes: object) -> object:
    return _infrastructure([dict(_DEVICE), dict(_CLOUD)], [dict(_LINK) | changes])


INFRASTRUCTURES: tuple[Wrong, ...] = (
    Wrong("no tiers", {"name": "lab"}, "tiers", "must be given", "None"),
    Wrong("empty tiers", _infrastructure([], []), "tiers", "must have at least one tier", "[]"),
    Wrong(
        "unknown tier in a link",
        _link(between=["device", "moon"]),
        "link.between",
        "must be among device, cloud",
        "moon",
    ),
    Wrong(
        "link to itself",
        _link(between=["cloud", "cloud"]),
        "between",
        "must name two tiers",
        "cloud",
    ),
    Wrong(
        "disconnected",
        _infrastructure([dict(_DEVICE), dict(_CLOUD)], []),
        "infrastructure.links",
        "must connect every two tiers",
        "device, cloud",
    ),
    Wrong(
        "duplicate tier",
        _infrastructure([dict(_CLOUD), dict(_CLOUD)], []),
        "infrastructure.tiers",
        "must not repeat",
        "cloud",
    ),
    Wrong(
        "duplicate link",
        _infrastructure([dict(_DEVICE), dict(_CLOUD)], [dict(_LINK), dict(_LINK)]),
        "infrastructure.links",
        "must not repeat",
        "device",
    ),
    Wrong("negative price", _tier(price_usd_per_hour=-1), "price_usd_per_hour", ">= 0", "-1"),
    Wrong("no speed", _tier(speed_factor=0), "speed_factor", "must be finite and > 0", "0"),
    Wrong("NaN speed", _tier(speed_factor=float("nan")), "speed_factor", "finite", "nan"),
    Wrong("machines as text", _tier(machines="many"), "machines", "whole number", "many"),
    Wrong("negative machines", _tier(machines=-2), "machines", "must be >= 0", "-2"),
    Wrong("unknown tier field", _tier(disks=8), "tiers[1]", "must have only the fields", "disks"),
    Wrong("unnamed tier", _tier(name=None), "tiers[1].name", "must be text", "None"),
    Wrong("no bandwidth", _link(bandwidth_mbit_per_s=0), "bandwidth", "> 0", "0"),
    Wrong("negative delay", _link(delay_s=-1), "delay_s", "must be finite and >= 0", "-1"),
    Wrong(
        "unknown origin",
        {"name": "lab", "origin": "moon", "tiers": [dict(_CLOUD)]},
        "infrastructure.origin",
        "must be among cloud",
        "moon",
    ),
)
