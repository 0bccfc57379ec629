from __future__ import annotations

import json

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import Problem
from circinus.scheduler.problem_form import problem_from_dict, problem_to_dict
from circinus.studies.scheduling.problems import Recipe, problem_of

TIER = {"name": "cloud", "machines": 2}
PLAN = {"id": "p", "demand": [{"tier": "cloud", "share": 0.5}]}


def query(**change: object) -> dict[str, object]:
    return {"id": "q", "plans": [PLAN], **change}


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ([], "problem must be an object"),
        ({"queries": []}, "problem.tiers must be given"),
        ({"tiers": [TIER]}, "problem.queries must be given"),
        ({"tiers": [TIER], "queries": [], "x": 1}, "a field of problem must be among .* got 'x'"),
        ({"tiers": [{"name": "c"}], "queries": []}, r"tiers\[0\].machines must be given"),
        (
            {"tiers": [TIER | {"machines": 1.5}], "queries": []},
            r"tiers\[0\].machines must be of type int, got 1.5",
        ),
        (
            {"tiers": [TIER | {"machines": True}], "queries": []},
            r"tiers\[0\].machines must be of type int, got True",
        ),
        (
            {"tiers": [TIER], "queries": [query(weight="2")]},
            r"queries\[0\].weight must be a number, got '2'",
        ),
        (
            {
                "tiers": [TIER],
                "queries": [
                    query(plans=[{"id": "p", "demand": [{"tier": "cloud", "share": 1.5}]}])
                ],
            },
            r"queries\[0\].plans\[0\].demand\[0\].share must be in \(0, 1\], got 1.5",
        ),
        (
            {
                "tiers": [TIER],
                "queries": [query(plans=[{"id": "p", "demand": [{"tier": "moon", "share": 1}]}])],
            },
            "plan p.demand must be among cloud, got 'moon'",
        ),
        (
            {"tiers": [TIER], "queries": [], "quotas": {"a": 2}},
            r"quota of a must be in \[0, 1\], got 2",
        ),
    ],
)
def test_what_is_wrong_is_named(document: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        problem_from_dict(document)


def test_what_is_written_is_read_back() -> None:
    tiers = (Tier(name="own", dedicated=True), Tier(name="cloud", machines=3))
    drawn = problem_of(Recipe(queries=5, plans=3, tiers=tiers), 1)
    problem = Problem(tiers=drawn.tiers, candidates=drawn.candidates, quotas={"a": 0.5})
    text = json.dumps(problem_to_dict(problem))
    assert problem_from_dict(json.loads(text)) == problem


def test_what_may_be_left_out_has_defaults() -> None:
    problem = problem_from_dict({"tiers": [TIER], "queries": [query()]})
    (candidate,) = problem.candidates
    assert (candidate.weight, candidate.priority, candidate.tenant) == (1.0, 0, "")
    assert not problem.tiers[0].dedicated
