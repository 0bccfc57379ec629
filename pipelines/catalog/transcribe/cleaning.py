"""Operators `denoiser` and `trimmer`: sound without its noise, and without its silence.

Two networks work on frames of 32 ms and carry their state along. GTCRN (Rong et al. 2024) filters
the complex spectra of frames that overlap by half. DTLN (Westhausen and Meyer 2020) masks the
magnitudes of frames that overlap by three quarters; then its second network filters the wave.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.onnx import session
from circinus.pipelines.catalog.speech.sound import (
    FULL_SCALE,
    RATE,
    Sound,
    as_samples,
    resampled,
)
from circinus.pipelines.catalog.speech.sound import denoised as subtracted
from circinus.pipelines.catalog.transcribe.networks import DTLN, GTCRN

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Wave: TypeAlias = NDArray[np.float32]

DENOISERS = ("none", "mask200", "gtcrn", "dtln")
TRIMMERS = ("none", "energy")

FRAME = 512  # samples of a frame of both networks, at `RATE`
_BINS = FRAME // 2 + 1
_GTCRN_HOP, _DTLN_HOP = FRAME // 2, FRAME // 4
_GTCRN_STATES = {
    "conv_cache": (2, 1, 16, 16, 33),
    "tra_cache": (2, 3, 1, 1, 16),
    "inter_cache": (2, 1, 33, 16),
}
_DTLN_STATE = (1, 2, 128, 2)

_STEP_S = 0.02
_MARGIN = 5  # steps that stay before and after what is loud
_ABOVE = 2.0  # times the quiet tenth's root mean square, from which a step is loud
_QUIET = 10  # percentile
_LEAST_S = 0.3  # that stay, whatever is loud


def denoised(sound: Sound, *, kind: str) -> Sound:
    """Return the sound, cleaned in that way; by a network, at `RATE`."""
    if kind in ("none", "mask200"):
        return subtracted(sound, kind=kind)
    at_rate = resampled(sound, RATE)
    wave = np.asarray(at_rate.samples / FULL_SCALE, dtype=np.float32)
    clean = _gtcrn(GTCRN.path("gtcrn.onnx"), wave) if kind == "gtcrn" else _dtln(wave)
    return Sound(rate=RATE, samples=as_samples(clean.astype(np.float64) * FULL_SCALE))


def trimmed(sound: Sound, *, kind: str) -> Sound:
    """Return the sound from the first loud step to the last one, with a margin; or as it is."""
    if kind == "none":
        return sound
    step = int(_STEP_S * sound.rate)
    steps = sound.samples[: len(sound.samples) // step * step].reshape(-1, step)
    loudness = np.sqrt(np.mean(steps.astype(np.float64) ** 2, axis=1))
    loud = np.flatnonzero(loudness > _ABOVE * np.percentile(loudness, _QUIET))
    if not len(loud):
        return sound
    begin = max(loud[0] - _MARGIN, 0) * step
    end = max((loud[-1] + 1 + _MARGIN) * step, begin + int(_LEAST_S * sound.rate))
    return Sound(rate=sound.rate, samples=sound.samples[begin:end])


def _gtcrn(path: Path, wave: Wave) -> Wave:  # (n,) -> (n,)
    network = session(path, size_bytes=GTCRN.size_bytes)
    window = np.sqrt(np.hanning(FRAME + 1)[:-1]).astype(np.float32)
    states = {name: np.zeros(shape, np.float32) for name, shape in _GTCRN_STATES.items()}

    def filtered(frame: Wave) -> Wave:
        spectrum = np.fft.rfft(frame * window)
        mix = np.stack([spectrum.real, spectrum.imag], axis=-1).astype(np.float32)
        outputs = network.run(None, {"mix": mix.reshape(1, _BINS, 1, 2), **states})
        states.update(zip(_GTCRN_STATES, outputs[1:], strict=True))
        enhanced = np.asarray(outputs[0]).reshape(_BINS, 2)
        back = np.fft.irfft(enhanced[:, 0] + 1j * enhanced[:, 1], n=FRAME)
        return np.asarray(back * window, dtype=np.float32)

    return _overlapping(wave, _GTCRN_HOP, filtered)


def _dtln(wave: Wave) -> Wave:  # (n,) -> (n,)
    first, second = (
        session(DTLN.path(f"model_{number}.onnx"), size_bytes=DTLN.size_bytes / 2)
        for number in (1, 2)
    )
    states = [np.zeros(_DTLN_STATE, np.float32), np.zeros(_DTLN_STATE, np.float32)]

    def filtered(frame: Wave) -> Wave:
        spectrum = np.fft.rfft(frame)
        magnitude = np.abs(spectrum).astype(np.float32).reshape(1, 1, _BINS)
        mask, states[0] = _stepped(first, magnitude, states[0])
        estimate = np.fft.irfft(spectrum * mask.reshape(_BINS), n=FRAME).astype(np.float32)
        output, states[1] = _stepped(second, estimate.reshape(1, 1, FRAME), states[1])
        return output.reshape(FRAME)

    # Frames that overlap by three quarters; the second network's outputs add up to the wave.
    return _overlapping(wave, _DTLN_HOP, filtered)


def _stepped(network: InferenceSession, frame: Wave, state: Wave) -> tuple[Wave, Wave]:
    names = [each.name for each in network.get_inputs()]
    output, state = network.run(None, dict(zip(names, (frame, state), strict=True)))
    return np.asarray(output), np.asarray(state)


def _overlapping(wave: Wave, hop: int, filtered: Callable[[Wave], Wave]) -> Wave:
    """Return the sum of filtered frames, each a hop behind the one before."""
    padded = np.pad(wave, (FRAME - hop, FRAME))
    out = np.zeros_like(padded)
    for start in range(0, len(padded) - FRAME + 1, hop):
        out[start : start + FRAME] += filtered(padded[start : start + FRAME])
    return out[FRAME - hop : FRAME - hop + len(wave)]
