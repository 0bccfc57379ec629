import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import FloatArray, Verdict
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import LatencyLooks
from circinus.planner.strategy.cmbo import Cmbo
from tests.oracles.synthetic import SyntheticEvaluator, chain

ONE = Infrastructure(name="one", tiers=(Tier(name="t"),))


class Hasty:
    """A rule that accepts everything after the first input."""

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        return Verdict.ABOVE


@pytest.mark.parametrize("bad", [0, -1])
def test_accepting_on_no_input_is_refused(bad: int) -> None:
    with pytest.raises(InvalidInput, match=rf"latency_looks\.accepted must be >= 1, got {bad}"):
        LatencyLooks(accepted=bad)


@pytest.mark.parametrize(("population", "inputs"), [(60, 20), (12, 12)])
def test_latency_is_promised_on_enough_inputs_though_accuracy_is_decided_at_once(
    population: int, inputs: int
) -> None:
    evaluator = SyntheticEvaluator(
        chain(1), lambda _: 0.9, lambda _: 0.01, population=population, noise=0.0
    )
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.5, latency_s=1.0))

    result = search(query, ONE, evaluator, Hasty(), settings=SearchSettings(strategy=Cmbo))

    assert result.inputs == inputs
    assert result.plans[0].latency_s.inputs == inputs
