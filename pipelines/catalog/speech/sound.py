"""Sound, which is samples with their rate, and transcripts; operators `sampler` and `denoiser`.

What comes in is checked here; the functions behind trust it. The denoiser makes the spectrum of
noise quieter, and keeps rate and length.

Notation: `X` (n_frames, n_bins) is the short-time spectrum of the sound, in frames of 32 ms that
overlap by three quarters; `N` (n_bins,) is the magnitude of the noise, `G` (n_frames, n_bins) the
gain, in [FLOOR, 1]. What comes out has the spectrum `G X`. The first and last `HOPS` frames reach
beyond the sound; noise is not looked for in them.

Operators `decoder`, by pocketsphinx and its bundled English acoustic model, and `corrector`.

A decoder decodes each recording as if it were its first, and one thread at a time has a decoder.
pocketsphinx remembers more than it documents. Its front end adapts, so it is set up anew for each
recording. Its acoustic model starts from the best Gaussians of the frame before, though that was
of another recording, and with `ds` stays with them for phones that come into the search later. So
a trigram scores all phones always (`compallsen`); a grammar, where that would take thrice as long,
first decodes a little hiss in a search that follows all phones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import checked_array, described
from circinus.pipelines.catalog.speech.sentences import commands, grammar, vocabulary, written
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload

if TYPE_CHECKING:
    from pocketsphinx import Decoder

Samples: TypeAlias = NDArray[np.int16]
FloatArray: TypeAlias = NDArray[np.float64]

RATE = 16000  # samples per second of an input, and the rate of the acoustic model
RATES = (8000, 12000, 16000)
SHORTEST_S = 0.25
LONGEST_S = 30.0  # an input that lasts longer is refused: it would be decoded for many seconds
MOST_CHARACTERS = 4000  # of a transcript: more than is spoken in `LONGEST_S`
FULL_SCALE = 32767


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """Mono sound."""

    rate: int  # samples per second, one of `RATES`
    samples: Samples  # (n,) int16, for `SHORTEST_S` to `LONGEST_S` seconds


def checked_recording(value: Payload) -> Samples:  # (n,)
    """Return the value as an input; InvalidInput unless int16, of one axis, within lengths."""
    return _samples("recording", value, RATE)


def checked_sound(value: Payload) -> Sound:
    """Return the value as sound; InvalidInput unless a dict of a known rate and its samples."""
    if not (isinstance(value, dict) and set(value) == {"rate", "samples"}):
        raise InvalidInput.of("sound", "must be a dict of rate and samples", _described(value))
    rate = value["rate"]
    if not (isinstance(rate, int) and rate in RATES):
        raise InvalidInput.of("sound.rate", f"must be one of {RATES}", _described(rate))
    return Sound(rate=rate, samples=_samples("sound.samples", value["samples"], rate))


def checked_transcript(field: str, value: Payload) -> str:
    """Return the value as words; InvalidInput unless a text as long as `LONGEST_S` allows."""
    if not isinstance(value, str):
        raise InvalidInput.of(field, "must be a text", _described(value))
    if len(value) > MOST_CHARACTERS:
        rule = f"must have at most {MOST_CHARACTERS} characters"
        raise InvalidInput.of(field, rule, len(value))
    return value


def _described(value: object) -> str:
    return str(value) if isinstance(value, int) else described(value)


def as_samples(wave: FloatArray) -> Samples:  # (n,) -> (n,)
    """Return a wave as whole numbers, cut off where they end."""
    return np.clip(np.rint(wave), -FULL_SCALE - 1, FULL_SCALE).astype(np.int16)


def _samples(field: str, value: Payload, rate: int) -> Samples:
    rule = "an int16 array of one axis"
    samples = checked_array(field, value, np.int16, lambda its: len(its) == 1, rule)
    least, most = int(SHORTEST_S * rate), int(LONGEST_S * rate)
    if not least <= len(samples) <= most:
        rule = f"must last {SHORTEST_S:g} to {LONGEST_S:g} s ({least} to {most} samples)"
        raise InvalidInput.of(field, rule, described(samples))
    return samples


def sampled(recording: Samples, *, rate: int) -> Sound:
    """Return a recording, which is at `RATE`, at another rate."""
    return resampled(Sound(rate=RATE, samples=recording), rate)


def resampled(sound: Sound, rate: int) -> Sound:
    """Return the sound at another rate, filtered against aliases; itself at the same rate."""
    if rate == sound.rate:
        return sound
    from scipy.signal import resample_poly

    common = gcd(rate, sound.rate)
    wave = resample_poly(sound.samples.astype(np.float64), rate // common, sound.rate // common)
    whole = len(sound.samples) * rate // sound.rate  # the filter gives a sample more for a part
    return Sound(rate=rate, samples=as_samples(wave[:whole]))


KINDS = ("none", "mask200", "gate1.5")
FRAME_S = 0.032
HOPS = 4  # hops per frame
LEAD_S = 0.2  # there is no speech that early: `mask200` takes this for noise
OVER = 1.5  # `gate1.5` closes below so many times the noise
QUIET = 30  # percentile of a bin's magnitudes that `gate1.5` takes for its noise
FLOOR = 0.1  # lowest gain: bins that vanish are worse for the acoustic model than quiet noise
_TINY = 1e-9  # digital silence has no magnitude to divide by


def denoised(sound: Sound, *, kind: str) -> Sound:
    """Return the sound, cleaned in that way."""
    if kind == "none":
        return sound
    return _filtered(sound, _subtracting if kind == "mask200" else _gating)


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
    """Return the sound with the spectrum `G X`, whose frames overlap and add up."""
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


MODELS = ("grammar", "trigram")

_SETTINGS = ("beam", "pbeam", "wbeam", "maxhmmpf", "ds", "topn", "fwdflat", "bestpath")
"""What pocketsphinx calls the columns of `EFFORTS`."""
EFFORTS: Mapping[str, tuple[bool | int | float, ...]] = {
    "fast": (1e-25, 1e-25, 1e-12, 200, 4, 2, False, False),
    "mid": (1e-50, 1e-50, 1e-25, 2500, 2, 3, False, False),
    "full": (1e-100, 1e-100, 1e-50, 12_000, 1, 4, True, True),
}
"""How hard a decoder searches: least likelihood, relative to the best, of a state, a phone and the
end of a word to be followed; most phone models followed at once, which bounds the time a frame
takes; the acoustic model scores one frame of so many; with so many Gaussians of a mixture; whether
a trigram searches the words again one by one, and the lattice of all it found."""
_LISTENING, _FORGETTING = "house", "phones"  # searches of a decoder of the grammar
_HISS_S = 0.15
_ALL_PHONES = 1e-300  # a beam that no phone falls out of


def decoded(sound: Sound, *, lm: str, effort: str) -> str:
    """Return the words, in lower case, parted by spaces; empty where none is recognised."""
    audio = resampled(sound, RATE).samples.tobytes()
    decoder, turn = _decoder(lm, effort)
    with turn:
        if lm == "grammar":
            decoder.activate_search(_FORGETTING)
            _decode(decoder, _hiss())
            decoder.activate_search(_LISTENING)
        _decode(decoder, audio)
        hypothesis = decoder.hyp()
    return str(hypothesis.hypstr) if hypothesis else ""


def _decode(decoder: Decoder, sound: bytes) -> None:
    decoder.reinit_feat()
    decoder.start_utt()
    decoder.process_raw(sound, full_utt=True)
    decoder.end_utt()


@cache
def _hiss() -> bytes:
    wave = 1000 * np.random.Generator(np.random.PCG64(0)).standard_normal(int(_HISS_S * RATE))
    return as_samples(wave).tobytes()


@cache
def _decoder(lm: str, effort: str) -> tuple[Decoder, Lock]:
    """Return a decoder, and the lock that serialises its users."""
    from pocketsphinx import Decoder, get_model_path
    from pocketsphinx.lm import ArpaBoLM

    with TemporaryDirectory() as folder:
        words, model = Path(folder, "house.dict"), Path(folder, "house.lm")
        words.write_text(_pronunciations(Path(get_model_path("en-us/cmudict-en-us.dict"))))
        if lm == "trigram":
            trigrams = ArpaBoLM(text="\n".join(written()), add_start=True)  # with back-off
            trigrams.compute()
            with model.open("w", encoding="utf-8") as file:
                trigrams.write(file)
        decoder = Decoder(
            hmm=get_model_path("en-us/en-us"),
            dict=str(words),
            lm=str(model) if lm == "trigram" else None,
            loglevel="FATAL",
            compallsen=lm == "trigram",
            pl_window=0,  # looking ahead of all phones costs more than it saves
            **dict(zip(_SETTINGS, EFFORTS[effort], strict=True)),
        )
    if lm == "grammar":
        decoder.add_jsgf_string(_LISTENING, grammar())
        decoder.config["beam"] = decoder.config["pbeam"] = _ALL_PHONES
        decoder.add_allphone_file(_FORGETTING, None)
    # Removing noise is the business of another operator. The file of the acoustic model
    # overrides the arguments of the constructor.
    decoder.config["remove_noise"] = False
    return decoder, Lock()


def _pronunciations(dictionary: Path) -> str:
    """Return the lines of the words we know: a small lexicon is read and searched faster."""
    known = set(vocabulary())
    with dictionary.open(encoding="utf-8") as lines:  # `word phones` or `word(2) phones`
        return "".join(line for line in lines if line.split(" ")[0].split("(")[0] in known)


CLOSE = 80
"""Least likeness, of 100: the share of characters that need no edit (rapidfuzz's `ratio`)."""


def corrected(transcript: str, *, kind: str) -> str:
    """Return the transcript, or the nearest command where one is near."""
    if kind == "none":
        return transcript
    from rapidfuzz import fuzz, process

    closest = process.extractOne(transcript, commands(), scorer=fuzz.ratio, score_cutoff=CLOSE)
    return closest[0] if closest else transcript
