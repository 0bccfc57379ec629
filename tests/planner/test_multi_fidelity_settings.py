import pytest

from pipelines.errors import InvalidInput
from planner.multi_fidelity_settings import MultiFidelitySettings


@pytest.mark.parametrize("part", [0.0, 1.1])
def test_the_part_of_inputs_to_scout_is_a_part(part: float) -> None:
    with pytest.raises(InvalidInput, match=r"scouted_part must be in \(0, 1\]"):
        MultiFidelitySettings(scouted_part=part)


@pytest.mark.parametrize(("population", "enough"), [(1, 1), (60, 18), (120, 36), (10_000, 48)])
def test_part_of_few_inputs_is_scouted_and_a_number_of_many(population: int, enough: int) -> None:
    assert MultiFidelitySettings().to_scout(population) == enough
