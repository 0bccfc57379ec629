"""Operator `recogniser`: the words of a sound, by Whisper or Moonshine.

Whisper (Radford et al. 2023) runs by CTranslate2, always on 30 s of sound: its time hardly depends
on the sound's. Moonshine (Jeffries et al. 2024) encodes what there is, and decodes greedily.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.onnx import session
from circinus.pipelines.catalog.speech.sound import FULL_SCALE, RATE, Sound, resampled
from circinus.pipelines.catalog.transcribe.networks import (
    MOONSHINE,
    WHISPER_BASE,
    WHISPER_TINY,
)
from circinus.pipelines.catalog.transcribe.recordings import normal
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import ModelWeights

if TYPE_CHECKING:
    from faster_whisper import WhisperModel
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

WHISPERS: Mapping[str, ModelWeights] = {"tiny.en": WHISPER_TINY, "base": WHISPER_BASE}
RECOGNISERS = (*WHISPERS, "moonshine")
PRECISIONS = ("int8", "float32")
_BYTES: Mapping[str, float] = {"int8": 1.0, "float32": 2.0}  # in memory, of those on disk
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
    whisper = _whisper(model, precision, threads)
    segments, _ = whisper.transcribe(
        samples,
        language="en",
        beam_size=beam,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return normal(" ".join(segment.text for segment in segments))


def _whisper(model: str, precision: str, threads: int) -> WhisperModel:
    known = WHISPERS.get(model)
    where = model if known is None else str(known.folder)
    size = _BYTES.get(precision, 1.0) * (0.0 if known is None else known.size_bytes)

    def load() -> WhisperModel:
        from faster_whisper import WhisperModel

        if known is not None:
            known.path("model.bin")
        return WhisperModel(
            where,
            device="auto",
            compute_type=precision,
            cpu_threads=threads,
            local_files_only=True,
        )

    return MODELS.get(("whisper", where, precision, threads), size, load)


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
