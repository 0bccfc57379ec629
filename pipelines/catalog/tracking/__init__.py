"""The built-in pipeline `tracking`: follow moving objects in a clip, on a CPU.

    sampler -> resizer -> denoiser -> detector -> tracker

One rule: every operator is a real algorithm and every clip has exact ground truth; how hard the
clips are is a design choice (`scenes`), so its accuracies say nothing about the world.
"""

from pipelines.catalog.tracking.definition import pipeline

__all__ = ["pipeline"]
