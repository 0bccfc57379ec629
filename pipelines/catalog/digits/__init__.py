"""The built-in pipeline `digits`: read a three-digit display in a noisy clip, on a CPU.

    sampler -> denoiser -> locator -> features -> classifier -> voter

One rule: every operator is a real algorithm and every clip has exact ground truth; how hard the
clips are is a design choice (`clips`), so its accuracies say nothing about the world.
"""

from pipelines.catalog.digits.definition import (
    half_light,
    pipeline,
    small_pipeline,
    three_quarter_light,
)

__all__ = ["half_light", "pipeline", "small_pipeline", "three_quarter_light"]
