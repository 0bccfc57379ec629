import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.profile import FloatArray
from planner.easiness import Easiness


def _told(scores: list[list[float]], means: list[float], *, common: float = 0.3) -> FloatArray:
    """Give what each single input tells of the first configuration."""
    population = max(len(one) for one in scores)
    easiness = Easiness(population)
    for one in scores:
        easiness.add(0, np.array(one))
    met = np.array([len(one) for one in scores])
    spans = [(i, i + 1) for i in range(len(scores[0]))]
    of = np.full(len(spans), means[0])
    return easiness.told(spans, of, met, np.array(means), common)


def test_what_all_answer_tells_little_and_what_half_answer_is_ordinary() -> None:
    rng = np.random.default_rng(0)
    scores = [[1.0, float(rng.random() < 0.6), 0.0] for _ in range(40)]
    all_right, mixed, all_wrong = _told(scores, [0.6] * 40)
    assert all_right < 0.2
    assert mixed == pytest.approx(1.0)
    assert all_wrong < 0.2


def test_one_configuration_cannot_tell_whether_an_input_is_easy() -> None:
    (own,) = _told([[1.0]], [0.6], common=0.1)
    assert own > 0.9


def test_scores_that_were_expected_say_nothing_of_the_input() -> None:
    """Twenty good configurations answer: that is because they are good."""
    expected = _told([[0.95]] * 20, [0.95] * 20)
    surprising = _told([[0.95]] * 20, [0.5] * 20)
    assert expected[0] == pytest.approx(1.0)
    assert surprising[0] < 0.5


def test_only_those_that_met_an_input_count() -> None:
    short, long = [1.0], [1.0, 0.0, 1.0, 0.0]
    alone = _told([long], [0.5])
    beside = _told([long, *[short] * 30], [0.5] * 31)
    assert beside[0] < 0.5 * alone[0]
    assert beside[1:] == pytest.approx(alone[1:])


def test_an_increment_tells_what_its_inputs_tell_on_average() -> None:
    easiness = Easiness(2)
    for right in (*(1.0,) * 18, 0.0, 0.0):
        easiness.add(0, np.array([1.0]))
        easiness.add(1, np.array([right]))
    met, means = np.full(20, 2), np.full(20, 0.5)
    spans = [(0, 2), (0, 1), (1, 2)]
    both, first, second = easiness.told(spans, np.full(3, 0.5), met, means, 0.3)
    assert 0.1 < first < second < 1.0
    assert both == pytest.approx((first + second) / 2)


def test_it_is_how_much_of_a_difference_shows_in_a_logistic_model() -> None:
    """Against draws: the slope of a mean score in ability, beside its mean over inputs."""
    rng = np.random.default_rng(1)
    difficulty = rng.normal(0, 1.5, 60)
    right = 1 / (1 + np.exp(difficulty))  # of a configuration of ability 0
    scores = (rng.random((600, 60)) < right).astype(float)
    mean = float(right.mean())
    common = float(right.var() / (mean * (1 - mean)))
    told = _told(scores.tolist(), [mean] * 600, common=common)
    slope = right * (1 - right)
    assert told == pytest.approx(np.clip(slope / slope.mean(), 0.1, 1.0), abs=0.12)


@given(
    scores=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=8),
    mean=st.floats(-0.5, 1.5),
    common=st.floats(0, 1),
)
def test_it_is_a_share_whatever_is_met(
    scores: list[list[float]], mean: float, common: float
) -> None:
    told = _told(scores, [mean] * len(scores), common=common)
    assert ((told >= 0.1) & (told <= 1.0)).all()
