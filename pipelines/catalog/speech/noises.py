"""Noise of four kinds, to say things in: hiss, rumble, a machine, a crowd.

One rule: noise comes at any loudness; who mixes it decides how loud it is.
"""

from __future__ import annotations

import numpy as np

from pipelines.catalog.speech.sound import RATE, FloatArray

NOISES = ("white", "pink", "hum", "babble")
TALKERS = 6
"""In the crowd of `babble`."""
_OVERTONES = 30
_LOWEST_HZ = 100.0
"""Coloured noise gets no louder below: a voice has nothing there either."""


def noise(kind: str, length: int, rng: np.random.Generator) -> FloatArray:  # (length,)
    """Noise of that kind, one of `NOISES`."""
    match kind:
        case "white":
            return rng.standard_normal(length)
        case "pink":
            return _coloured(length, -0.5, rng)
        case "hum":
            return _hum(length, rng)
        case _:
            return sum((_talker(length, rng) for _ in range(TALKERS)), np.zeros(length))


def _coloured(length: int, power: float, rng: np.random.Generator) -> FloatArray:
    """Noise whose magnitude falls with frequency, to that power."""
    whole = length + -length % RATE  # of entire seconds, whose transforms are fast
    hertz = np.fft.rfftfreq(whole, 1 / RATE)
    spectrum = np.fft.rfft(rng.standard_normal(whole))
    return np.fft.irfft(spectrum * np.maximum(hertz, _LOWEST_HZ) ** power, n=whole)[:length]


def _hum(length: int, rng: np.random.Generator) -> FloatArray:
    """A tone of a motor with its overtones, and a little hiss."""
    turns = rng.uniform(95, 125) * np.arange(length) / RATE
    phases = rng.uniform(0, 2 * np.pi, _OVERTONES)
    hum = 0.1 * rng.standard_normal(length)
    for overtone, phase in enumerate(phases, start=1):
        hum += np.sin(2 * np.pi * overtone * turns + phase) / overtone
    return hum


def _talker(length: int, rng: np.random.Generator) -> FloatArray:
    """A voice without words: noise with the spectrum of speech, in the rhythm of syllables."""
    turns = rng.uniform(2.5, 5) * np.arange(length) / RATE + rng.random()
    return _coloured(length, -1, rng) * np.maximum(np.sin(2 * np.pi * turns), 0)
