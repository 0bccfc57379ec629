"""What a pod tolerates decides which nodes are its own, as Kubernetes decides it."""

from __future__ import annotations

from itertools import product

import pytest

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.nodes import untolerated

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LENT = {"key": "lent", "effect": "NoExecute"}
SHY = {"key": "shy", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "other", "operator": "Exists"},
        {"key": "nvidia.com/gpu"},  # Equal, to no value
        {"key": "nvidia.com/gpu", "value": "absent"},
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "PreferNoSchedule"},
    ],
)
def test_another_taint_is_not_tolerated(toleration: Object) -> None:
    assert untolerated([GPU], [toleration])
    assert untolerated([GPU], [toleration]) == ("nvidia.com/gpu=present:NoSchedule",)


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "nvidia.com/gpu", "value": "present"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists"},
        {"key": "", "operator": "Exists", "effect": ""},
    ],
)
def test_the_taint_is_tolerated_by_key_value_and_effect_or_what_is_left_out(
    toleration: Object,
) -> None:
    assert not untolerated([GPU], [{"key": "other"}, toleration])


def test_every_taint_has_to_be_tolerated() -> None:
    lent = {"key": "lent", "operator": "Exists"}
    assert untolerated([GPU, LENT], [lent]) == ("nvidia.com/gpu=present:NoSchedule",)
    assert untolerated([GPU, LENT], []) == ("nvidia.com/gpu=present:NoSchedule", "lent:NoExecute")
    assert not untolerated([GPU, LENT], [lent, {"key": GPU["key"], "operator": "Exists"}])


def test_a_taint_that_only_asks_to_stay_away_needs_no_toleration() -> None:
    assert not untolerated([SHY], [])
    assert not untolerated([], [])


def test_who_is_driven_out_after_a_while_is_not_tolerated_by_the_first_that_matches() -> None:
    forever = {"key": "lent", "operator": "Exists"}
    a_while = {**forever, "effect": "NoExecute", "tolerationSeconds": 300}
    assert untolerated([LENT], [a_while])
    assert untolerated([LENT], [a_while, forever])
    assert not untolerated([LENT], [forever, a_while])
    # The seconds say nothing of where pods are put.
    assert not untolerated(
        [{**LENT, "effect": "NoSchedule"}], [{**forever, "tolerationSeconds": 1}]
    )


def test_one_toleration_and_one_taint_are_as_the_documented_rule_has_them() -> None:
    """All combinations beside the rule as Kubernetes' documentation says it, in one sentence."""
    keys, values, effects = ("", "a", "b"), ("", "x"), ("", "NoSchedule", "NoExecute")
    taints = [
        {"key": k, "value": v, "effect": e} for k, v, e in product(keys[1:], values, effects[1:])
    ]
    tolerations = [
        {"key": k, "operator": o, "value": v, "effect": e}
        for k, o, v, e in product(keys, ("Equal", "Exists"), values, effects)
        # The API server takes no others.
        if (k or o == "Exists") and not (o == "Exists" and v)
    ]
    for taint, one in product(taints, tolerations):
        same_key = one["key"] == taint["key"] or one["key"] == ""
        same_effect = one["effect"] == taint["effect"] or one["effect"] == ""
        same_value = one["operator"] == "Exists" or one["value"] == taint["value"]
        tolerated = not untolerated([taint], [one])
        assert tolerated == (same_key and same_effect and same_value), (
            taint,
            one,
        )
