"""Operators `decoder`, by pocketsphinx and its bundled English acoustic model, and `corrector`.

A decoder hears each recording as if it were its first, and one thread at a time has a decoder.
pocketsphinx remembers more than it says. Its front end adapts, so it is set up anew for each
recording. Its acoustic model starts from the best Gaussians of the frame before, though that was
of another recording, and with `ds` stays with them for phones that come into the search later. So
a trigram scores all phones always (`compallsen`); a grammar, where that would take thrice as long,
first hears a little hiss in a search that follows all phones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from circinus.pipelines.catalog.speech.sentences import commands, grammar, vocabulary, written
from circinus.pipelines.catalog.speech.sound import RATE, Sound, as_samples, resampled

if TYPE_CHECKING:
    from pocketsphinx import Decoder

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
    """The words heard, in lower case and parted by spaces; empty where nothing is understood."""
    heard = resampled(sound, RATE).samples.tobytes()
    decoder, turn = _decoder(lm, effort)
    with turn:
        if lm == "grammar":
            decoder.activate_search(_FORGETTING)
            _hear(decoder, _hiss())
            decoder.activate_search(_LISTENING)
        _hear(decoder, heard)
        found = decoder.hyp()
    return str(found.hypstr) if found else ""


def _hear(decoder: Decoder, sound: bytes) -> None:
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
    """A decoder, and the lock that says whose turn it is."""
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
    # Removing noise is the business of another operator. The file of the acoustic model says
    # otherwise, and outdoes what the constructor is told.
    decoder.config["remove_noise"] = False
    return decoder, Lock()


def _pronunciations(dictionary: Path) -> str:
    """The lines of the words we know: a small lexicon is read and searched faster."""
    known = set(vocabulary())
    with dictionary.open(encoding="utf-8") as lines:  # `word phones` or `word(2) phones`
        return "".join(line for line in lines if line.split(" ")[0].split("(")[0] in known)


CLOSE = 80
"""Least likeness, of 100: the share of characters that need no edit (rapidfuzz's `ratio`)."""


def corrected(transcript: str, *, kind: str) -> str:
    """The transcript, or the nearest command where one is near."""
    if kind == "none":
        return transcript
    from rapidfuzz import fuzz, process

    found = process.extractOne(transcript, commands(), scorer=fuzz.ratio, score_cutoff=CLOSE)
    return found[0] if found else transcript
