import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.planner.strategy.acquisition import MultiFidelitySettings


@pytest.mark.parametrize(
    ("field", "bad"),
    [("candidates", 0), ("first", 0), ("step", 0), ("minimum", 1), ("confidence", 0.5)],
)
def test_a_setting_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    with pytest.raises(InvalidInput, match=rf"multi_fidelity\.{field} must be"):
        MultiFidelitySettings(**{field: bad})  # type: ignore[arg-type]  # one bad field
