"""An infrastructure as plain data, as YAML files and HTTP bodies write it.

name: lab
origin: device                   # optional: where requests come from; default: the first tier
tiers:
  - {name: device, machines: 1, price_usd_per_hour: 0, speed_factor: 0.25, dedicated: true}
  - {name: cloud, machines: 4, price_usd_per_hour: 2.5}
    # calibration: what `circinus calibrate` measured
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 50, delay_s: 0.01}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

from pipelines.calibration import Calibration, ClassSpeed
from pipelines.errors import Fault, InvalidInput
from pipelines.infrastructure import Infrastructure, Link, Tier

_BYTES_PER_MBIT = 1e6 / 8
_TOP = {"name": str, "origin": str, "tiers": list, "links": list}
_TIER = {
    "name": str,
    "machines": int,
    "price_usd_per_hour": float,
    "speed_factor": float,
    "dedicated": bool,
    "emulated": bool,
    "call_s": float,
    "call_s_per_byte": float,
    "calibration": dict,
}
_CALIBRATION = {"date": str, "share": float, "tier_factor": float, "speeds": dict}
_SPEED = {"factor": float, "low": float, "high": float, "repetitions": int}
_LINK = {"between": list, "bandwidth_mbit_per_s": float, "delay_s": float, "emulated": bool}

Built = TypeVar("Built")


def infrastructure_from_dict(document: object) -> Infrastructure:
    """Give the infrastructure that a document describes.

    Raises:
        InvalidInput: With every broken rule, fields named as paths such as `tiers[1].machines`.
    """
    faults: list[Fault] = []
    top = _fields("infrastructure", document, _TOP, ("name", "tiers"), faults)
    tiers = [_tier(f"tiers[{i}]", item, faults) for i, item in enumerate(_items(top, "tiers"))]
    links = [_link(f"links[{i}]", item, faults) for i, item in enumerate(_items(top, "links"))]
    if faults:
        raise InvalidInput(faults)
    origin = top.get("origin")
    return Infrastructure(
        name=str(top["name"]),
        tiers=tuple(tier for tier in tiers if tier),
        links=tuple(link for link in links if link),
        origin=None if origin is None else str(origin),
    )


def infrastructure_to_dict(infrastructure: Infrastructure) -> dict[str, object]:
    """Give the document of an infrastructure; `infrastructure_from_dict` reads it back."""
    return {
        "name": infrastructure.name,
        "origin": infrastructure.origin,
        "tiers": [
            {
                field: getattr(tier, field)
                for field in _TIER
                if field != "calibration" or tier.calibration is not None
            }
            | _calibration_to_dict(tier.calibration)
            for tier in infrastructure.tiers
        ],
        "links": [
            {
                "between": list(link.between),
                "bandwidth_mbit_per_s": link.bandwidth_bytes_per_s / _BYTES_PER_MBIT,
                "delay_s": link.delay_s,
                "emulated": link.emulated,
            }
            for link in infrastructure.links
        ],
    }


def _items(top: Mapping[str, object], field: str) -> Sequence[object]:
    items = top.get(field)
    return items if isinstance(items, list) else []


def _tier(path: str, document: object, faults: list[Fault]) -> Tier | None:
    fields = _fields(path, document, _TIER, ("name",), faults)
    if "calibration" in fields:
        where = f"{path}.calibration"
        fields["calibration"] = _calibration(where, fields["calibration"], faults)
    return _built(path, lambda: Tier(**fields), faults)  # type: ignore[arg-type]  # types checked by _fields


def _calibration(path: str, document: object, faults: list[Fault]) -> Calibration | None:
    fields = _fields(path, document, _CALIBRATION, tuple(_CALIBRATION), faults)
    given = fields.get("speeds")
    speeds = {}
    for name, item in (given if isinstance(given, dict) else {}).items():
        where = f"{path}.speeds.{name}"
        parts = _fields(where, item, _SPEED, tuple(_SPEED), faults)
        speeds[str(name)] = _built(where, lambda parts=parts: ClassSpeed(**parts), faults)  # type: ignore[misc]  # types checked by _fields
    fields["speeds"] = speeds
    return _built(path, lambda: Calibration(**fields), faults)  # type: ignore[arg-type]  # types checked by _fields


def _calibration_to_dict(calibration: Calibration | None) -> dict[str, object]:
    return {} if calibration is None else {"calibration": asdict(calibration)}


def _link(path: str, document: object, faults: list[Fault]) -> Link | None:
    fields = _fields(path, document, _LINK, ("between", "bandwidth_mbit_per_s"), faults)
    ends = fields.pop("between", None)
    if not (isinstance(ends, list) and len(ends) == 2 and all(isinstance(e, str) for e in ends)):
        faults.append(Fault.of(f"{path}.between", "must name two tiers", ends))
        return None
    rate = fields.pop("bandwidth_mbit_per_s", None)
    if not isinstance(rate, int | float):
        return None
    fields |= {"between": (ends[0], ends[1]), "bandwidth_bytes_per_s": rate * _BYTES_PER_MBIT}
    return _built(path, lambda: Link(**fields), faults)  # type: ignore[arg-type]  # types checked by _fields


def _built(path: str, build: Callable[[], Built], faults: list[Fault]) -> Built | None:
    if any(fault.field.startswith(path) for fault in faults):
        return None  # said already; building would only say it again
    try:
        return build()
    except InvalidInput as error:
        faults += [Fault(f"{path}: {f.field}", f.rule, f.value) for f in error.faults]
        return None


def _fields(
    path: str,
    document: object,
    types: Mapping[str, type],
    required: Sequence[str],
    faults: list[Fault],
) -> dict[str, object]:
    if not isinstance(document, dict):
        faults.append(Fault.of(path, "must be a mapping", document))
        return {}
    missing = [field for field in required if field not in document]
    faults += [Fault.of(f"{path}.{field}", "must be given", None) for field in missing]
    known = {}
    for field, value in document.items():
        if field not in types:
            rule = f"must have only the fields {', '.join(types)}"
            faults.append(Fault.of(path, rule, field))
        elif not _is(value, types[field]):
            rule = f"must be {_WORDS[types[field]]}"
            faults.append(Fault.of(f"{path}.{field}", rule, value))
        else:
            known[field] = value
    return known


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


def _is(value: object, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)
