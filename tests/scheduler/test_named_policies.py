"""Policies by name: what settings and studies ask for is what they get."""

from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES, DispatchState, Fleet
from circinus.scheduler.ilp import Objective
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import SCHEDULING_POLICIES


def test_an_unknown_name_gets_the_list_of_names() -> None:
    with pytest.raises(InvalidInput, match="must be among priced, greedy, ilp, fcfs, local_best"):
        scheduling_policy("best", Terms())
    with pytest.raises(InvalidInput, match="must be among plan_ahead, kairos, fcfs, fcfs_reject"):
        dispatch_policy("best")


def test_every_name_gives_a_policy_of_its_own() -> None:
    assert len({repr(scheduling_policy(n, Terms())) for n in SCHEDULING_POLICIES}) == 5
    assert len({repr(dispatch_policy(n)) for n in DISPATCH_POLICIES}) == len(DISPATCH_POLICIES)


def test_the_defaults_come_first() -> None:
    assert isinstance(scheduling_policy(SCHEDULING_POLICIES[0], Terms()), Priced)
    assert isinstance(dispatch_policy(DISPATCH_POLICIES[0]), PlanAhead)


def test_terms_reach_the_policy() -> None:
    moving = Terms(migration=Migration(price=0.5))
    assert scheduling_policy("priced", moving).migration == Migration(price=0.5)  # type: ignore[attr-defined]  # a Priced
    assert isinstance(scheduling_policy("priced", Terms(objective=Objective.COST)), Rental)


def test_first_come_first_served_turns_away_what_no_instance_could_serve_in_time() -> None:
    # One busy instance; the first request waited 0.5 s and takes 0.6 s of 1 s: too late. The
    # second can still be in time.
    state = DispatchState(
        np.array([0.5, 0.1]),
        np.array([1.0, 1.0]),
        np.array([1.0, 1.0]),
        np.array([-1, -1], dtype=np.int64),
        np.array([[0.6], [0.6]]),
        np.array([0.2]),
        np.array([False]),
        Fleet.alike(1),
    )
    assert list(FcfsDispatch(rejects=True).decide(state).rejected) == [0]
    assert list(FcfsDispatch().decide(state).rejected) == []
