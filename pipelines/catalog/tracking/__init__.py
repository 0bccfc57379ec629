"""The built-in pipeline `tracking`: follow moving objects in a clip, on a CPU.

Its chain is `sampler -> resizer -> denoiser -> detector -> tracker`.
"""

from circinus.pipelines.catalog.tracking.definition import pipeline

__all__ = ["pipeline"]
