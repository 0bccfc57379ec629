"""Operator `sampler`: fewer samples per second, so fewer bytes and no high sounds."""

from __future__ import annotations

from math import gcd

import numpy as np

from pipelines.catalog.speech.sound import Sound, as_samples


def resampled(sound: Sound, rate: int) -> Sound:
    """The sound at another rate, filtered against aliases; itself where the rate is the same."""
    if rate == sound.rate:
        return sound
    from scipy.signal import resample_poly

    common = gcd(rate, sound.rate)
    wave = resample_poly(sound.samples.astype(np.float64), rate // common, sound.rate // common)
    whole = len(sound.samples) * rate // sound.rate  # the filter gives a sample more for a part
    return Sound(rate=rate, samples=as_samples(wave[:whole]))
