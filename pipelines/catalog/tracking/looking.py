"""What a clip looks like, in a few numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog.tracking.handed_over import UInt8Array


def clip_features(
    clip: UInt8Array,  # (n_frames, height, width)
) -> NDArray[np.float64]:
    """How hard a clip looks, from a few of its pixels, for stratified sampling.

    Returns:
        (5,): noise level (robust standard deviation of the steps between neighbouring pixels of
        the first frame), light (standard deviation of the frames' brightness), change (mean, then
        99th percentile of the change over the clip, noise not taken off), and shake (mean change
        from the first frame to the second); all in grey levels.
    """
    steps = np.diff(clip[0, ::9].astype(np.float32), axis=1)
    coarse = clip[:, 4::24, 4::24].astype(np.float32)
    spread = np.abs(coarse[::6] - np.median(coarse[::6], axis=0))
    return np.array(
        [
            1.4826 / np.sqrt(2) * np.median(np.abs(steps)),
            coarse.mean(axis=(1, 2)).std(),
            spread.mean(),
            np.percentile(spread, 99),
            np.abs(coarse[1] - coarse[0]).mean(),
        ]
    )
