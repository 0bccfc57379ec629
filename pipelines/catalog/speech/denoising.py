"""Operator `denoiser`: two ways to make the spectrum of noise quieter.

One rule: sound in, sound of the same rate and length out.

Notation: `X` (n_frames, n_bins) is the short-time spectrum of the sound, in frames of 32 ms that
overlap by three quarters; `N` (n_bins,) is the magnitude of the noise, `G` (n_frames, n_bins) the
gain, in [FLOOR, 1]. What comes out has the spectrum `G X`. The first and last `HOPS` frames reach
beyond the sound; noise is not looked for in them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelines.catalog.speech.sound import FloatArray, Sound, as_samples
from pipelines.errors import InvalidInput

FRAME_S = 0.032
HOPS = 4
"""Hops per frame."""
LEAD_S = 0.2
"""Nobody speaks that early: `mask200` takes this for noise."""
OVER = 1.5
"""`gate1.5` closes below so many times the noise."""
QUIET = 30
"""Percentile of a bin's magnitudes that `gate1.5` takes for its noise."""
FLOOR = 0.1
"""Lowest gain: bins that vanish are worse for the acoustic model than quiet noise."""
_TINY = 1e-9
"""Digital silence has no magnitude to divide by."""


def denoised(sound: Sound, *, kind: str) -> Sound:
    """The sound, cleaned in that way."""
    match kind:
        case "none":
            return sound
        case "mask200":
            return _filtered(sound, _subtracting)
        case "gate1.5":
            return _filtered(sound, _gating)
        case _:
            raise InvalidInput.of("kind", "must be none, mask200 or gate1.5", kind)


def _subtracting(magnitudes: FloatArray) -> FloatArray:
    """`G = max(1 - N / |X|, FLOOR)`, N the mean of the frames in the first 200 ms (Boll 1979)."""
    frames = int((LEAD_S - FRAME_S) / FRAME_S * HOPS) + 1
    noise = magnitudes[HOPS : HOPS + frames].mean(axis=0)
    gain = 1 - noise / np.maximum(magnitudes, _TINY)
    return np.asarray(np.clip(gain, FLOOR, 1), dtype=np.float64)


def _gating(magnitudes: FloatArray) -> FloatArray:
    """`G` is 1 where `|X| > OVER N` and FLOOR elsewhere, then smoothed over 3 frames and bins."""
    from scipy.ndimage import uniform_filter

    noise = np.percentile(magnitudes[HOPS:-HOPS], QUIET, axis=0)
    is_open = (magnitudes > OVER * noise).astype(np.float64)
    return np.asarray(FLOOR + (1 - FLOOR) * uniform_filter(is_open, 3), dtype=np.float64)


def _filtered(sound: Sound, gain: Callable[[FloatArray], FloatArray]) -> Sound:
    """The sound with the spectrum `G X`, whose frames overlap and add up."""
    hop = int(sound.rate * FRAME_S) // HOPS
    frame = hop * HOPS
    window = np.sin(np.pi * (np.arange(frame) + 0.5) / frame) ** 2
    wave = np.pad(sound.samples.astype(np.float64), frame)
    starts = np.arange(0, len(wave) - frame + 1, hop)
    pieces = np.lib.stride_tricks.sliding_window_view(wave, frame)[starts]  # (n_frames, frame)
    spectra = np.fft.rfft(pieces * window, axis=1)
    pieces = np.fft.irfft(spectra * gain(np.abs(spectra)), n=frame, axis=1)
    out = np.zeros(len(wave))
    for start, piece in zip(starts, pieces, strict=True):
        out[start : start + frame] += piece
    # Squared sines that overlap by three quarters add up to HOPS / 2 everywhere.
    clean = out[frame : frame + len(sound.samples)] / (HOPS / 2)
    return Sound(rate=sound.rate, samples=as_samples(clean))
