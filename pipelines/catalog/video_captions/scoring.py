"""How good captions are: by their seconds and their words, and by the words of all together.

Fujita et al. 2020, "SODA: story oriented dense video captioning evaluation": captions are matched
one to one, and what pairs have in common counts against all captions there are. Here pairs are
those of most in common, in any order; the text score is ROUGE-L (Lin 2004).

Notation: `C[i, j]` the IoU of the seconds of caption i and reference j, times the ROUGE-L of their
texts; `S` the sum over the pairs of most; then the score is `2 S / (captions + references)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from circinus.pipelines.catalog.video_captions.footage import Caption, checked_captions
from circinus.pipelines.model.payload import Payload

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

_METRIC = "rougeL"


def caption_score(output: Payload, expected: Payload) -> float:
    """Return the score of captions, in [0, 1]; 1 if there are none and none are expected."""
    from scipy.optimize import linear_sum_assignment

    captions = checked_captions("output", output)
    references = checked_captions("expected", expected)
    if not captions or not references:
        return float(len(captions) == len(references))
    C = np.array(
        [
            [iou(one, other) * rouge_l(one.text, other.text) for other in references]
            for one in captions
        ]
    )
    S = C[linear_sum_assignment(C, maximize=True)].sum()
    return float(2 * S / (len(captions) + len(references)))


def iou(one: Caption, other: Caption) -> float:
    """Return intersection over union of the seconds of two captions, in [0, 1]."""
    common = min(one.end, other.end) - max(one.start, other.start)
    union = max(one.end, other.end) - min(one.start, other.start)
    return max(0.0, common) / union


def rouge_l(text: str, reference: str) -> float:
    """Return the F-measure of the longest common subsequence of words, in [0, 1]."""
    return float(_scorer().score(reference, text)[_METRIC].fmeasure)


def rouge_over_set(outputs: Sequence[Payload], expected: Sequence[Payload]) -> float:
    """Return ROUGE-L over all clips: the words in common, of all words of all clips.

    The captions of a clip are one text, in their order; seconds do not count.
    """
    common, words, reference_words = 0.0, 0, 0
    for output, reference in zip(outputs, expected, strict=True):
        texts = [_whole("output", output), _whole("expected", reference)]
        count, reference_count = (len(_tokens(text)) for text in texts)
        common += _scorer().score(texts[1], texts[0])[_METRIC].precision * count
        words, reference_words = words + count, reference_words + reference_count
    return 2 * common / (words + reference_words) if words + reference_words else 1.0


def _whole(field: str, value: Payload) -> str:
    return " ".join(caption.text for caption in checked_captions(field, value))


@cache
def _scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([_METRIC])


def _tokens(text: str) -> Sequence[str]:
    from rouge_score.tokenizers import DefaultTokenizer

    return list(DefaultTokenizer(use_stemmer=False).tokenize(text))
