"""Operator `recogniser`: the words of a sound, by Whisper or Moonshine.

Moonshine (Jeffries et al. 2024) encodes what there is of sound, and decodes greedily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.onnx import session
from circinus.pipelines.catalog.speech.sound import FULL_SCALE, RATE, Sound, resampled
from circinus.pipelines.catalog.transcribe.networks import MOONSHINE
from circinus.pipelines.catalog.transcribe.recordings import normal
from circinus.pipelines.catalog.whisper import WHISPER, WhisperSettings, transcript
from circinus.pipelines.execution.loaded import MODELS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

RECOGNISERS = (*WHISPER, "moonshine")
_UNPACKED = 2.0  # memory of a network over its file

_BEGIN, _END = 1, 2  # tokens of Moonshine
_LAYERS, _HEADS, _WIDTH = 8, 8, 52  # of its decoder
_TOKENS_PER_S = 6.5  # most, as its authors have it
_FEWEST_TOKENS = 8


def recognised(sound: Sound, *, model: str, precision: str, beam: int, threads: int) -> str:
    """Return the words, in lower case, parted by spaces; empty where none is recognised.

    A model that is none of `RECOGNISERS` is a Whisper of the user's: a folder, or a name that the
    hub's cache has. Moonshine has one precision and no beam.
    """
    samples = np.asarray(resampled(sound, RATE).samples / FULL_SCALE, dtype=np.float32)
    if model == "moonshine":
        return normal(_by_moonshine(samples, threads))
    settings = WhisperSettings(model=model, compute=precision, beam=beam, threads=threads)
    return normal(transcript(samples, settings))


def _by_moonshine(samples: NDArray[np.float32], threads: int) -> str:
    encoder, decoder = (
        session(MOONSHINE.path(f"{part}.ort"), size_bytes=_half(), threads=threads)
        for part in ("encoder", "decoder")
    )
    (hidden,) = encoder.run(None, {"input_values": samples[None]})
    most = max(int(len(samples) / RATE * _TOKENS_PER_S), _FEWEST_TOKENS)
    tokens = _decoded(decoder, np.asarray(hidden), most)
    text: str = _tokenizer().decode(tokens, skip_special_tokens=True)
    return text


def _decoded(decoder: InferenceSession, hidden: NDArray[np.float32], most: int) -> list[int]:
    """Return the tokens of greatest likelihood, one after the other, at most so many."""
    empty = np.zeros((1, _HEADS, 0, _WIDTH), np.float32)
    names = [
        f"{layer}.{side}.{what}"
        for layer in range(_LAYERS)
        for side in ("decoder", "encoder")
        for what in ("key", "value")
    ]
    past = {f"past_key_values.{name}": empty for name in names}
    tokens = [_BEGIN]
    for step in range(most):
        inputs = {
            "input_ids": np.array([tokens[-1:]], np.int64),
            "encoder_hidden_states": hidden,
            "use_cache_branch": np.array([step > 0]),
            **past,
        }
        logits, *present = decoder.run(None, inputs)
        token = int(np.asarray(logits)[0, -1].argmax())
        if token == _END:
            break
        tokens.append(token)
        for name, value in zip(names, present, strict=True):
            # What the encoder gave is computed in the first step alone.
            if step == 0 or ".encoder." not in name:
                past[f"past_key_values.{name}"] = np.asarray(value)
    return tokens[1:]


def _tokenizer() -> Tokenizer:
    def load() -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(MOONSHINE.path("tokenizer.json")))

    tokenizer: Tokenizer = MODELS.get(("tokenizer", str(MOONSHINE.folder)), 0.0, load)
    return tokenizer


def _half() -> float:
    return MOONSHINE.size_bytes * _UNPACKED / 2
