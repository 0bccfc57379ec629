"""What the authors of Kairos measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from circinus.scheduler.pool.kairos_bound import KairosFigures
from circinus.scheduler.pool.search import PoolSpace
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.studies.data import DATA

TYPES = ("g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge")
QOS_S = {"rm2": 0.35, "wnd": 0.025, "mtwnd": 0.025}
BUDGET = 2.5


def latencies(model: str) -> LatencyTable:
    """Return the table of a model."""
    with (DATA / "kairos_latency.csv").open(newline="") as file:
        return parse_latencies(file, model)


def space() -> PoolSpace:
    """Return the pools of the four types that the budget pays of each alone."""
    with (DATA / "instance_prices.csv").open(newline="") as file:
        told = {row["instance"]: float(row["usd_per_hour"]) for row in csv.DictReader(file)}
    return PoolSpace.within_budget(TYPES, [told[name] for name in TYPES], BUDGET, most=99)


def profile(model: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the authors' inputs to equation 15, by type."""
    told: dict[str, dict[str, dict[str, Any]]]
    told = json.loads((DATA / "kairos_allocator_profile.json").read_text())
    return told[model]


def published_figures(model: str) -> KairosFigures:
    """Return the authors' figures of a model; no rate where a type is late sooner than another."""
    base, *others = (profile(model)[name] for name in TYPES)
    small = np.array([each["small_ratio"] for each in others])
    large = base["qps"] * (1 - small) / (1 - np.array([each["time_ratio"] for each in others]))
    rates = [[i["all_batch"].get(str(j["vio_batch"]), 0.0) for i in others] for j in others]
    return KairosFigures(
        base_rps=base["qps"],
        base_large_rps=large,
        small=small,
        auxiliary_rps=np.array(rates),
    )
