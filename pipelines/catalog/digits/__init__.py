"""The built-in pipeline `digits`: read a three-digit display in a noisy clip, on a CPU.

Its chain is `sampler -> denoiser -> locator -> features -> classifier -> voter`.
"""

from circinus.pipelines.catalog.digits.definition import (
    half_light,
    pipeline,
    small_pipeline,
    three_quarter_light,
)

__all__ = ["half_light", "pipeline", "small_pipeline", "three_quarter_light"]
