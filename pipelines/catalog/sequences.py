"""What the frames of a clip show, decided over all of them.

A frame may show little. So a clip is taken for the likeliest sequence of pictures, where a change
of picture costs `CHANGE` (Viterbi 1967).

Notation: `P` (n, CLASSES) log-probabilities of the frames, `E` (n, n_labels) of each pair of
colour and shape, `S` (n_labels,) of the likeliest sequence that ends so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.picture_models import FloatArray
from circinus.pipelines.catalog.pictures import COLOURS, SHAPES, Labels

CHANGE = 4.0  # natural logarithms, against a picture's interruption by a frame that shows little
LABELS = tuple(Labels(colour, shape) for colour, shape in product(COLOURS, SHAPES))


class Run(NamedTuple):
    """Frames one after the other that show the same."""

    label: int  # place in `LABELS`
    start: int  # the first frame
    end: int  # the frame after the last


def likeliest(P: FloatArray) -> Sequence[int]:  # (n, CLASSES)
    """Return the pair of `LABELS` of each frame in the likeliest sequence."""
    E = (P[:, : len(COLOURS), None] + P[:, None, len(COLOURS) :]).reshape(len(P), -1)
    S, before = E[0], list[NDArray[np.intp]]()
    for row in E[1:]:
        best = int(S.argmax())
        stays = S[best] - CHANGE <= S
        before.append(np.where(stays, np.arange(len(S)), best))
        S = np.where(stays, S, S[best] - CHANGE) + row
    path = [int(S.argmax())]
    for row in reversed(before):
        path.append(int(row[path[-1]]))
    return path[::-1]


def runs_of(rows: Sequence[int]) -> Iterator[Run]:
    """Yield the runs of equal labels, in order."""
    for label, run in groupby(enumerate(rows), lambda row: row[1]):
        places = [place for place, _ in run]
        yield Run(label, places[0], places[-1] + 1)
