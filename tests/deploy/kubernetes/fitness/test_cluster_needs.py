"""What is needed follows from the chart's values, as the chart itself has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from circinus.deploy.kubernetes.fitness.api_server import OLDEST
from circinus.deploy.kubernetes.fitness.needs import ClusterNeeds, needs_of
from circinus.pipelines.errors import InvalidInput

CHART = Path(__file__).resolve().parents[4] / "deploy" / "chart"


def needs(values: dict[str, Any]) -> ClusterNeeds:
    return needs_of(values, namespace="n", installs=True)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"deployment": []}, r"deployment.target must be below a mapping, got \[\]"),
        ({"deployment": {"target": "moon"}}, "deployment.target must be among local, kubernetes"),
        ({"deployment": {"machine": {"cpu": "lots"}}}, "quantity must be a number .*'lots'"),
        ({"deployment": {"machine": {"cpu": 0}}}, "deployment.machine.cpu must be > 0, got '0'"),
        ({"discovery": {"enabled": "yes"}}, "discovery.enabled must be true or false, got 'yes'"),
        ({"infrastructure": "local"}, "infrastructure.document must be below a mapping"),
        ({"infrastructure": {"preset": "moon"}}, "infrastructure.preset must be among .*'moon'"),
        ({"infrastructure": {"document": {"name": "x"}}}, "tiers"),
        (
            {"deployment": {"podTemplate": {"spec": {"tolerations": [{"kee": "a"}]}}}},
            r"podTemplate.spec.tolerations\[0\].kee must be a field of Kubernetes, got 'a'",
        ),
    ],
)
def test_a_value_that_breaks_a_rule_is_named(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        needs(values)


def test_what_values_leave_out_is_as_the_chart_has_it() -> None:
    own = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert needs({}) == needs(own)
    assert not needs({}).deploys
    assert needs({}).claims


def test_what_values_turn_on_is_needed() -> None:
    tolerated = {"key": "gpu", "operator": "Exists"}
    tiers = [
        {"name": "edge", "machines": 3},
        {"name": "device", "machines": 7, "dedicated": True},
        {"name": "cloud", "types": [{"name": "s", "machines": 2}, {"name": "l", "machines": 0}]},
    ]
    link = {"bandwidth_mbit_per_s": 100, "delay_s": 0.001}
    pairs = [["device", "edge"], ["edge", "cloud"]]
    values = {
        "deployment": {
            "target": "kubernetes",
            "machine": {"cpu": 2, "memory": "8Gi"},
            "podTemplate": {"spec": {"tolerations": [tolerated]}},
        },
        "discovery": {"enabled": True},
        "operator": {"enabled": False, "serviceUrl": "http://x"},
        "persistence": {"storageClass": "fast", "existingClaim": "mine"},
        "infrastructure": {
            "document": {
                "name": "three",
                "tiers": tiers,
                "links": [{"between": pair, **link} for pair in pairs],
            }
        },
        "crds": {"install": False},
    }

    assert needs(values) == ClusterNeeds(
        namespace="n",
        operates=False,
        defines=False,
        tiers={"edge": 3, "device": 1, "cloud/s": 2, "cloud/l": 0},
        least={"cpu": "2", "memory": "8Gi"},
        tolerations=(tolerated,),
        storage_class="fast",
        existing_claim="mine",
        has_url=True,
    )


def test_the_oldest_version_is_that_of_the_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={OLDEST[0]}.{OLDEST[1]}.0-0"
