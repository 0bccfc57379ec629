"""Sentences spoken to the house: commands of a grammar, and free sentences about the same things.

One rule: a sentence is in one place only, the language model's text or one part of the
examples'. Which one is drawn once, so that each of them has all forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import yaml

Form = tuple[str, ...]  # slots in order, each its alternatives parted by `|`

_FORMS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
COMMANDS: tuple[Form, ...] = tuple(map(tuple, _FORMS["commands"]))
FREE: tuple[Form, ...] = tuple(map(tuple, _FORMS["free"]))

_SHARE_OF_MODEL = 4  # one sentence in so many is text of the language model
_SHUFFLED_BY_SEED = 5


def grammar() -> str:
    """Return the commands as a JSGF grammar."""
    forms = (" ".join(f"({slot})" for slot in form) for form in COMMANDS)
    return f"#JSGF V1.0; grammar house; public <command> = {' | '.join(forms)};"


@cache
def commands() -> tuple[str, ...]:
    """Return all sentences of the grammar, each once."""
    return _sentences(COMMANDS)


@cache
def spoken(forms: tuple[Form, ...]) -> Sequence[str]:
    """Return the sentences of the examples, in a fixed shuffled order."""
    return [text for at, text in enumerate(_shuffled(forms)) if at % _SHARE_OF_MODEL]


def written() -> Sequence[str]:
    """Return the sentences that only the language model is made of."""
    return [*_shuffled(COMMANDS)[::_SHARE_OF_MODEL], *_shuffled(FREE)[::_SHARE_OF_MODEL]]


def vocabulary() -> Sequence[str]:
    """Return all words of the domain, in the order of the alphabet."""
    slots = (slot for form in COMMANDS + FREE for slot in form)
    return sorted({word for slot in slots for word in slot.replace("|", " ").split()})


def _sentences(forms: tuple[Form, ...]) -> tuple[str, ...]:
    slots = ((slot.split("|") for slot in form) for form in forms)
    return tuple(" ".join(words) for form in slots for words in product(*form))


def _shuffled(forms: tuple[Form, ...]) -> Sequence[str]:
    sentences = _sentences(forms)
    rng = np.random.Generator(np.random.PCG64(_SHUFFLED_BY_SEED))
    return [sentences[at] for at in rng.permutation(len(sentences))]
