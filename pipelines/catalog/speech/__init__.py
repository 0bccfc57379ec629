"""The built-in pipeline `speech`: recognise a sentence said to a house, in noise, on a CPU.

Its chain is `sampler -> denoiser -> decoder -> corrector`.
"""

from circinus.pipelines.catalog.speech.definition import pipeline

__all__ = ["pipeline"]
