"""What operators exchange: sound, which is samples with their rate, and transcripts.

One rule: what comes in is checked here; the functions behind trust it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import InvalidInput
from pipelines.payload import Payload

Samples: TypeAlias = NDArray[np.int16]
FloatArray: TypeAlias = NDArray[np.float64]

RATE = 16000
"""Samples per second of an input, and what the acoustic model hears."""
RATES = (8000, 12000, 16000)
SHORTEST_S = 0.25
LONGEST_S = 30.0
"""An input that lasts longer is refused: it would be decoded for many seconds."""
MOST_CHARACTERS = 4000
"""Of a transcript: more than anybody says in `LONGEST_S`."""
FULL_SCALE = 32767


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """Mono sound.

    Attributes:
        rate: Samples per second, one of `RATES`.
        samples: (n,) int16, for `SHORTEST_S` to `LONGEST_S` seconds.
    """

    rate: int
    samples: Samples

    def payload(self) -> Payload:
        """The form in which operators exchange it."""
        return {"rate": self.rate, "samples": self.samples}


def checked_recording(value: Payload) -> Samples:  # (n,)
    """The value as an input of the pipeline.

    Raises:
        InvalidInput: It is not an int16 array of one axis that lasts long enough and not too long.
    """
    return _samples("recording", value, RATE)


def checked_sound(value: Payload) -> Sound:
    """The value as sound at one of the rates.

    Raises:
        InvalidInput: It is not a dict of a known rate and of samples that fit it.
    """
    if not (isinstance(value, dict) and set(value) == {"rate", "samples"}):
        raise InvalidInput.of("sound", "must be a dict of rate and samples", described(value))
    rate = value["rate"]
    if not (isinstance(rate, int) and rate in RATES):
        raise InvalidInput.of("sound.rate", f"must be one of {RATES}", described(rate))
    return Sound(rate=rate, samples=_samples("sound.samples", value["samples"], rate))


def checked_transcript(field: str, value: Payload) -> str:
    """The value as words.

    Raises:
        InvalidInput: It is no text, or a longer one than anybody says in `LONGEST_S`.
    """
    if not isinstance(value, str):
        raise InvalidInput.of(field, "must be a text", described(value))
    if len(value) > MOST_CHARACTERS:
        rule = f"must have at most {MOST_CHARACTERS} characters"
        raise InvalidInput.of(field, rule, len(value))
    return value


def described(value: object) -> str:
    """What a value is, in a few words, for the message of an error."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return str(value) if isinstance(value, int) else type(value).__name__


def as_samples(wave: FloatArray) -> Samples:  # (n,) -> (n,)
    """A wave as whole numbers, cut off where they end."""
    return np.clip(np.rint(wave), -FULL_SCALE - 1, FULL_SCALE).astype(np.int16)


def _samples(field: str, value: Payload, rate: int) -> Samples:
    if not (isinstance(value, np.ndarray) and value.dtype == np.int16 and value.ndim == 1):
        raise InvalidInput.of(field, "must be an int16 array of one axis", described(value))
    least, most = int(SHORTEST_S * rate), int(LONGEST_S * rate)
    if not least <= len(value) <= most:
        rule = f"must last {SHORTEST_S:g} to {LONGEST_S:g} s ({least} to {most} samples)"
        raise InvalidInput.of(field, rule, described(value))
    return value.view(np.int16)
