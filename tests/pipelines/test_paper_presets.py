"""The set-ups of the Circinus paper, and devices of users that are unlike."""

from __future__ import annotations

import re
from collections import Counter
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io import presets
from circinus.pipelines.io.infrastructure_file import (
    infrastructure_from_dict,
    infrastructure_to_dict,
)
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import DeviceProfile, with_device

MBIT = 1e6 / 8

# By 6.1 and A.2: tier -> machines where the paper counts them, and the GPU.
TIERS: dict[str, dict[str, int | None]] = {
    "paper-small": {"device": 1, "mec": 4, "cloud": 4},
    "paper-large": {"device": 1, "mec": 64, "cloud": 64},
    "paper-one-tier": {"cloud": None},
    "paper-four-tier": {"device": 1, "near-edge": None, "mec": None, "cloud": None},
}
# By A.2: Mbit/s between a device and the first cluster, and an edge cluster and the cloud.
LINKS = {("device", "mec"): 50, ("device", "near-edge"): 50, ("mec", "cloud"): 400}
# Google Cloud, us-central1, on demand: of a GPU, and of N1's vCPU and GiB.
T4, V100, A2_ULTRAGPU_1G, VCPU, GIB = 0.35, 2.48, 5.07, 0.031611, 0.004237
PRICES = {
    "device": 0.0,
    "near-edge": T4 + 8 * VCPU + 32 * GIB,
    "mec": V100 + 8 * VCPU + 32 * GIB,
    "cloud": A2_ULTRAGPU_1G,
}
# TFLOPS of data sheets, over the A100's.
SPEEDS = {"near-edge": 65 / 312, "mec": 125 / 312, "cloud": 1.0}
DEVICES = {"gtx-1080ti": 11.3 / 312, "rtx-2080ti": 53.8 / 312, "rtx-3090": 71 / 312}
OURS = {"price_usd_per_hour", "speed_factor", "spread", "seed"}  # of which the paper has no figure


@pytest.mark.parametrize("name", TIERS)
def test_a_set_up_of_the_paper_has_its_figures(name: str) -> None:
    preset = PRESETS[name]
    assert [tier.name for tier in preset.tiers] == [*TIERS[name]]
    for tier in preset.tiers:
        machines = TIERS[name][tier.name]
        assert machines in (None, tier.machines)
        assert tier.price_usd_per_hour == pytest.approx(PRICES[tier.name], abs=0.005)
        assert tier.dedicated == (tier.name == "device")
        if tier.name != "device":
            assert (tier.cores, tier.memory_gib) == (8, 32)
            assert tier.speed_factor == pytest.approx(SPEEDS[tier.name], abs=0.01)
    for link in preset.links:
        if link.between in LINKS:
            assert link.bandwidth_bytes_per_s == LINKS[link.between] * MBIT


@pytest.mark.parametrize("name", ["paper-small", "paper-four-tier"])
def test_eight_devices_have_three_speeds(name: str) -> None:
    kinds = PRESETS[name].devices
    assert sum(kind.machines for kind in kinds) == 8
    assert {kind.name for kind in kinds} == set(DEVICES)
    for kind in kinds:
        assert kind.speed_factor == pytest.approx(DEVICES[kind.name], abs=0.005)
    assert PRESETS[name].tier("device").speed_factor == kinds[0].speed_factor


def test_drawn_devices_are_unlike_in_speed_and_bandwidth_and_always_the_same() -> None:
    kinds = PRESETS["paper-large"].devices
    assert len(kinds) == 128
    # Logarithms are normal, with deviation ln 2. Of 128, five standard errors (0.061 of the
    # mean, 0.043 of the deviation) are exceeded once in 1,700,000 seeds.
    for figures, median in (
        ([kind.speed_factor for kind in kinds], 0.023),
        ([kind.bandwidth_bytes_per_s for kind in kinds], 50 * MBIT),
    ):
        logarithms = np.log(np.array(figures, dtype=float) / median)
        assert logarithms.mean() == pytest.approx(0.0, abs=0.31)
        assert logarithms.std() == pytest.approx(log(2), abs=0.22)
    assert kinds == infrastructure_from_dict(_documents()["paper-large"]).devices


def _documents() -> dict[str, dict[str, Any]]:
    text = Path(presets.__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {document["name"]: document for document in yaml.safe_load_all(text)}


def test_figures_that_are_not_in_the_paper_are_marked_in_the_file() -> None:
    text = Path(presets.__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    _, *documents = re.split(r"^name: (?=paper-)", text, flags=re.MULTILINE)
    lines = [line for one in documents for line in one.splitlines() if line.startswith("  - {")]
    assert len(lines) == 8 + 6 + 1 + 10
    for line in lines:
        figures, _, marked = line.partition("  # ours: ")
        (item,) = yaml.safe_load(figures)
        unstated = {key for key in OURS & set(item) if item[key] != 0}  # devices are free: A.2
        assert unstated <= set(marked.split(", "))
        assert set(filter(None, marked.split(", "))) <= set(item)


def document(**device: object) -> dict[str, Any]:
    return {
        "name": "x",
        "tiers": [{"name": "device", "dedicated": True, "speed_factor": 0.1}, {"name": "cloud"}],
        "links": [{"between": ["device", "cloud"], "bandwidth_mbit_per_s": 50}],
        "devices": [{"name": "phone", **device}],
    }


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"speed": 1.0}, r"devices\[0\] must have only the fields name, machines, .*'speed'"),
        ({"speed_factor": "fast"}, r"devices\[0\]\.speed_factor must be a number, got 'fast'"),
        ({"speed_factor": 0.0}, r"devices\[0\]: speed_factor must be from 1e-06 .*got 0"),
        ({"bandwidth_mbit_per_s": 0}, r"devices\[0\]: bandwidth_mbit_per_s must be from 0.001"),
        ({"machines": -1}, r"devices\[0\]: machines must be from 0 to 100000, got -1"),
        ({"spread": 0.5}, r"devices\[0\]: spread must be from 1 to 1000000, got 0.5"),
        ({"spread": 2.0, "seed": -1}, r"devices\[0\]: seed must be from 0 to .*got -1"),
        ({"name": ""}, r"devices\[0\]: devices.name must"),
    ],
)
def test_wrong_devices_are_refused(device: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infrastructure_from_dict(document(**device))


def test_devices_of_one_name_are_refused() -> None:
    twice = document()
    twice["devices"] *= 2
    with pytest.raises(InvalidInput, match=r"infrastructure\.devices must .*phone"):
        infrastructure_from_dict(twice)


def test_devices_where_requests_start_on_a_shared_tier_are_refused() -> None:
    shared = document() | {"origin": "cloud"}
    with pytest.raises(InvalidInput, match=r"infrastructure\.devices must be left out: .*cloud"):
        infrastructure_from_dict(shared)


def test_a_device_that_the_infrastructure_lacks_is_refused() -> None:
    there = infrastructure_from_dict(document())
    with pytest.raises(InvalidInput, match=r"device\.name must be among phone, got 'tablet'"):
        with_device(there, DeviceProfile(name="tablet"))


def test_a_query_s_device_has_the_figures_of_its_kind_but_those_that_it_states() -> None:
    there = infrastructure_from_dict(document(speed_factor=0.3, bandwidth_mbit_per_s=20))
    own = with_device(there, DeviceProfile(name="phone", speed_factor=0.4, delay_s=0.01))
    assert own.tier("device").speed_factor == 0.4
    assert own.links[0].bandwidth_bytes_per_s == 20 * MBIT
    assert own.links[0].delay_s == 0.01
    assert own.tier("cloud") == there.tier("cloud")


def test_users_have_devices_in_turn_as_many_as_there_are() -> None:
    small = PRESETS["paper-small"]
    names = [device.name for device in map(small.device_of, range(16)) if device is not None]
    assert Counter(names) == {"gtx-1080ti": 6, "rtx-2080ti": 6, "rtx-3090": 4}
    assert names[:8] == names[8:]
    assert PRESETS["three-tier"].device_of(0) is None


def test_drawn_devices_keep_within_the_ranges_and_survive_the_way_to_a_document() -> None:
    wild = document(
        machines=50, speed_factor=1.0, bandwidth_mbit_per_s=1.0, spread=1e6, delay_s=0.1
    )
    there = infrastructure_from_dict(wild)
    assert len(there.devices) == 50
    assert infrastructure_from_dict(infrastructure_to_dict(there)) == there
