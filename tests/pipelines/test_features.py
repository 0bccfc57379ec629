from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from sklearn.metrics import adjusted_rand_score

from circinus.pipelines.execution.features import features_of, generic_features
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload
from circinus.profiler.drawing import equal_strata, round_robin

STEP = Operator(spec=OperatorSpec(name="step"), run=lambda inputs, knobs: inputs)


def test_a_pipeline_s_own_features_go_before_generic_ones() -> None:
    plain = Pipeline(name="plain", operators=(STEP,), score=lambda output, expected: 1.0)
    own = Pipeline(
        name="own", operators=(STEP,), score=plain.score, features=lambda item: np.ones(2)
    )

    known = features_of(own, [1, 2, 3])
    assert known.values.tolist() == [[1, 1], [1, 1], [1, 1]]
    assert known.source == "2 features of pipeline own"

    generic = features_of(plain, [1, 2, 3])
    assert generic.values.tolist() == [[1], [2], [3]]
    assert generic.source == "1 generic features of the inputs"


UNLIKE: list[tuple[Payload, Payload]] = [
    (1, 2),
    (True, False),
    (1, True),
    (None, 0),
    (10**400, 1),
    (float("nan"), 1.0),
    ("short", "a text of more words"),
    ("a, b", "1, 2"),
    ("word", "WORD"),
    (b"1", b"12"),
    ([1, 2], [1, 2, 3]),
    ([1, 2], [1, 9]),
    ([["a"]], [["b c"]]),
    ({"a": 1}, {"b": 1}),
    ({"a": {"b": "x"}}, {"a": {"b": "x y"}}),
    ({"a": 1}, {"a": None}),
    (np.zeros(3), np.ones(3)),
    (np.zeros((0, 2)), np.zeros((1, 2))),
    (np.array(["a"]), np.array(["b", "c"])),
    (np.zeros(3, np.uint8), np.zeros(3)),
    (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])),  # alike but for their order
    (np.array([np.inf, 1.0]), np.array([1.0, 1.0])),
]


@pytest.mark.parametrize(("first", "second"), UNLIKE)
def test_inputs_that_differ_have_features_that_differ(first: Payload, second: Payload) -> None:
    table = generic_features([first, second, first])
    assert table.shape[1] >= 1
    assert (table[0] != table[1]).all()
    assert (table[0] == table[2]).all()


def test_inputs_that_are_equal_have_no_feature() -> None:
    assert generic_features(["same", "same"]).shape == (2, 0)


def test_what_an_input_lacks_is_0_and_the_kind_says_so() -> None:
    # in the order of names: the key b's kind and value, then how many keys (ln 2, ln 3)
    table = generic_features([{"a": 1}, {"a": 1, "b": 0}, {"a": 1, "b": 5}])
    expected = [[0, 0, np.log(2)], [1, 0, np.log(3)], [1, 5, np.log(3)]]
    assert table == pytest.approx(np.array(expected))


def test_an_image_is_known_by_brightness_contrast_and_edges() -> None:
    # stripes of 0 and 4 across the rows: mean 2, deviation 2, change 4 along columns only
    stripes = np.tile(np.array([0, 4], np.uint8), (6, 3))
    table = generic_features([stripes, np.zeros_like(stripes)])
    assert table.tolist() == [[4, 2, 2], [0, 0, 0]]


PAYLOADS: st.SearchStrategy[Payload] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | arrays(
        st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.complex128, np.bool_]),
        array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(inputs=st.lists(PAYLOADS, min_size=1, max_size=8))
def test_features_are_finite_few_and_of_each_input_whatever_their_order(
    inputs: list[Payload],
) -> None:
    table = generic_features(inputs)
    assert table.shape[0] == len(inputs)
    assert table.shape[1] <= 64
    assert np.isfinite(table.astype(np.float32)).all()
    assert np.array_equal(generic_features(inputs[::-1]), table[::-1])


def test_a_large_image_is_thinned_out_and_keeps_its_statistics() -> None:
    rng = np.random.default_rng(0)
    large = rng.integers(0, 256, (2000, 3000, 3), np.uint8)
    table = generic_features([large, np.zeros_like(large)])
    # uniform on 0 to 255: mean 127.5, deviation 73.9; of some 50,000 values five standard
    # errors are 5 x 73.9 / 220 = 1.7
    assert np.abs(table[0] - 127.5).min() < 1.7
    assert np.abs(table[0] - 73.9).min() < 1.7


Kind = Callable[[np.random.Generator], Payload]


def noise(rng: np.random.Generator) -> Payload:
    return rng.integers(0, 256, (24, 24), dtype=np.uint8)


def smooth(rng: np.random.Generator) -> Payload:
    rows, columns = np.ogrid[:24, :24]
    return np.asarray(rows + columns + rng.integers(0, 60), dtype=np.uint8)


def prose(rng: np.random.Generator) -> Payload:
    words = rng.choice(["tree", "river", "stone", "cloud"], rng.integers(20, 40))
    return {"id": int(rng.integers(1000)), "text": " ".join(words)}


def table_of_numbers(rng: np.random.Generator) -> Payload:
    return {"id": int(rng.integers(1000)), "text": "\n".join(map(str, rng.random(6)))}


def quiet(rng: np.random.Generator) -> Payload:
    return [*map(float, rng.normal(0, 0.01, 50))]


def loud(rng: np.random.Generator) -> Payload:
    return [*map(float, rng.normal(0, 1.0, 50))]


@pytest.mark.parametrize(
    ("one", "other"), [(noise, smooth), (prose, table_of_numbers), (quiet, loud)]
)
@pytest.mark.parametrize("seed", range(5))
def test_two_kinds_of_inputs_become_the_strata(one: Kind, other: Kind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat([0, 1], 30))
    inputs = [(one, other)[kind](rng) for kind in kinds]
    strata = equal_strata(generic_features(inputs), rng, strata=2)
    assert adjusted_rand_score(kinds, strata) == 1.0


def test_the_mean_of_strata_by_generic_features_varies_as_proportional_allocation_says() -> None:
    # 100 texts of prose, which score about 0.9, and 100 of numbers, about 0.3. n = 20 of N = 200
    # in K = 10 strata of 20, so 2 of each, without replacement. By Cochran (and appendix C for a
    # large N), with S_k^2 the variance within stratum k, and S^2 over all inputs:
    #     stratified: 1 / K^2  sum_k  S_k^2 / 2  (1 - 2 / 20)        random: S^2 / n  (1 - n / N)
    rng = np.random.default_rng(7)
    kinds = np.repeat([0, 1], 100)
    inputs = [(prose, table_of_numbers)[kind](rng) for kind in kinds]
    scores = np.where(kinds == 0, 0.9, 0.3) + rng.uniform(-0.1, 0.1, 200)
    strata = equal_strata(generic_features(inputs), rng, strata=10)
    within = np.array([scores[strata == k].var(ddof=1) for k in range(10)])
    stratified = (within / 2 * (1 - 2 / 20)).sum() / 10**2
    random = scores.var(ddof=1) / 20 * (1 - 20 / 200)
    assert stratified < 0.25 * random

    # Of 2,000 orders each the variance of the mean is off by a factor of 1 +- 0.032 (standard
    # error, sqrt(2 / 2000)): five of them are exceeded once in 1,700,000 seeds.
    def variance(orders: Sequence[np.ndarray]) -> float:
        return float(np.var([scores[order[:20]].mean() for order in orders], ddof=1))

    assert variance([round_robin(strata, rng) for _ in range(2000)]) == pytest.approx(
        stratified, rel=0.16
    )
    assert variance([rng.permutation(200) for _ in range(2000)]) == pytest.approx(random, rel=0.16)
