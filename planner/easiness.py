"""How much inputs tell of configurations: what all answer alike tells of no difference.

| symbol | meaning |
| --- | --- |
| m_c | mean score of configuration c, as predicted |
| d_i | by how much input i is easier than others, in units of a score |
| q | share of the variance of single scores that configurations have in common |
| k_i | configurations that met input i |

Where c scores m_c + d_i on input i, scores there vary by (m_c + d_i)(1 - m_c - d_i), which is
m_c (1 - m_c)(1 - q) on average over inputs. In a logistic model of scores (Rasch's, of tests and
those who take them) the slope of a mean score in what is measured is that variance too: it says
how much of a difference between configurations shows, and how much an answer tells. Near 0 and
1 nothing shows: taken for ordinary, an input that all answer says that all are equally good.

d_i is the mean over the k_i of scores less predictions, drawn towards 0 as a random effect is:
times k_i / (k_i + (1 - q) / q). What is not known of it, q / (1 + k_i q / (1 - q)) of
m_c (1 - m_c), does not count as variance of scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray
from planner.scores import inside

_COMMON = (0.05, 0.8)  # q is kept between: at 0 no input could be easier
_INSIDE = 0.01  # scores nearer to 0 or 1 than this count as this far away
_LEAST = 0.1  # nothing tells less than a tenth of what an ordinary input does
_ORDINARY = 1.0
"""Nothing tells more: scores need not be counts of right answers, and no more than what is
measured of ordinary inputs is relied on."""


class Easiness:
    """Learns which inputs are easy from the scores of all configurations that met them.

    Args:
        population: Number of inputs.
    """

    def __init__(self, population: int) -> None:
        self._totals = np.zeros(population)  # of scores, over configurations

    def add(self, since: int, scores: FloatArray) -> None:
        """Take in a configuration's scores of the inputs from `since` on."""
        self._totals[since : since + len(scores)] += scores

    def told(
        self,
        spans: Sequence[tuple[int, int]],
        of: FloatArray,
        met: IndexArray,
        means: FloatArray,
        common: float,
    ) -> FloatArray:
        """Give how much inputs tell, 1 for ordinary ones, in [0.1, 1], shape (n,).

        Args:
            spans: First input and the one after the last, n times.
            of: m_c of the configuration of each span, shape (n,).
            met: How many inputs each of k configurations met, all >= 1, shape (k,).
            means: m_c of these, shape (k,).
            common: q.
        """
        longest = int(met.max())
        q = float(np.clip(common, *_COMMON))
        ridge = (1 - q) / q
        counts = np.bincount(met - 1, minlength=longest)[::-1].cumsum()[::-1]  # k_i
        expected = np.bincount(met - 1, weights=means, minlength=longest)[::-1].cumsum()[::-1]
        easier = (self._totals[:longest] - expected) / (counts + ridge)
        unknown = q / (1 + counts / ridge)
        found = np.empty(len(spans))
        for i, ((since, until), mean) in enumerate(zip(spans, inside(of), strict=True)):
            score = np.clip(mean + easier[since:until], _INSIDE, 1 - _INSIDE)
            ratio = score * (1 - score) / (mean * (1 - mean))
            found[i] = (ratio - unknown[since:until]).mean() / (1 - q)
        return np.clip(found, _LEAST, _ORDINARY)
