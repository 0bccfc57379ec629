"""The built-in pipeline `digits`: read a three-digit display in a noisy clip, on a CPU.

    sampler -> denoiser -> locator -> features -> classifier -> voter

One rule: every operator is a real algorithm and every clip has exact ground truth; how hard the
clips are is a design choice (`clips`), so its accuracies say nothing about the world.
"""

from pipelines.catalog.digits.definition import pipeline, small_pipeline

__all__ = ["pipeline", "small_pipeline"]
