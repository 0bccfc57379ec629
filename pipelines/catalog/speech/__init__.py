"""The built-in pipeline `speech`: recognise a sentence said to a house, in noise, on a CPU.

    sampler -> denoiser -> decoder -> corrector

One rule: every operator is a real algorithm and every recording has exact ground truth; how loud
the noise is is a design choice (`utterances`), so its accuracies say nothing about the world.
"""

from pipelines.catalog.speech.definition import pipeline

__all__ = ["pipeline"]
