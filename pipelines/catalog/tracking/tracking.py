"""Operator `tracker`: which boxes of different frames are the same object.

Frame after frame, boxes are paired with the tracks alive; a box without a track starts one, a
track without a box waits for some frames. The three methods differ in where they expect a track
and in what they call alike.

    iou   where it was last; the IoU, greedily (Bochinski et al. 2017)
    sort  where a Kalman filter says; the IoU, by least total cost (Bewley et al. 2016)
    app   the same; half generalised IoU, half grey histogram, so that what jumped farther than
          its size, or was hidden for long, is found again by its look (as Wojke et al. 2017 do)

The filter takes a constant velocity. Each of the four coordinates has a position and a velocity of
its own and all are seen at once, so one 2 x 2 covariance serves all four: Bewley et al. keep a
7 x 7 one, from which this deviates by letting shape and size drift as centres do.

Notation: `x` (4,) centre and size, `v` (4,) velocity per frame; `[[a, b], [b, c]]` covariance of
position and velocity; `Q` variance of the acceleration, `R` of what is seen; `t` frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from circinus.pipelines.catalog.tracking.boxes import (
    Pairs,
    best_pairs,
    generalised_iou,
    greedy_pairs,
    iou,
)
from circinus.pipelines.catalog.tracking.footage import BoxArray, Detections, FloatArray

Q = 0.5  # (pixels per frame^2)^2: sprites turn and rest
R = 9.0  # pixels^2: edges of a mask are off by about 3 pixels
FIRST_SPEED = 16.0  # (pixels per frame)^2, variance of the velocity of what was seen once


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """What is known of a box at one time."""

    x: FloatArray
    v: FloatArray
    a: float = R
    b: float = 0.0
    c: float = FIRST_SPEED

    def after(self, t: float) -> Motion:
        """What is known of it `t` frames later, unseen."""
        return Motion(
            x=self.x + t * self.v,
            v=self.v,
            a=self.a + 2 * t * self.b + t * t * self.c + Q * t**4 / 4,
            b=self.b + t * self.c + Q * t**3 / 2,
            c=self.c + Q * t * t,
        )

    def seen(self, x: FloatArray) -> Motion:
        """What is known of it once it was seen at `x`."""
        gain_x, gain_v = self.a / (self.a + R), self.b / (self.a + R)
        innovation = x - self.x
        return Motion(
            x=self.x + gain_x * innovation,
            v=self.v + gain_v * innovation,
            a=(1 - gain_x) * self.a,
            b=(1 - gain_x) * self.b,
            c=self.c - gain_v * self.b,
        )


def motion_of(box: FloatArray) -> Motion:
    """What is known of a box (x, y, w, h) that was seen once."""
    return Motion(x=centred(box), v=np.zeros(4))


def centred(box: FloatArray) -> FloatArray:
    """Centre and size of a box (x, y, w, h)."""
    return np.concatenate([box[:2] + box[2:] / 2, box[2:]])


def cornered(x: FloatArray) -> FloatArray:
    """The box (x, y, w, h) of a centre and size; never smaller than a pixel."""
    size = np.maximum(x[2:], 1.0)
    return np.concatenate([x[:2] - size / 2, size])


FEWEST_SIGHTS, SHORTEST = 3, 8
"""A track must have been seen in so many searched frames, and in a span of so many frames of the
clip if it was seen in all: others are taken for noise."""
FADING = 0.8  # weight of the earlier look of a track against the one just seen


@dataclass(slots=True, kw_only=True)
class _Track:
    """One object so far: when and where it was seen, where it is expected, its look."""

    times: list[int]
    boxes: list[FloatArray]
    motion: Motion
    look: FloatArray


@dataclass(frozen=True, slots=True)
class _Method:
    """What makes a tracker."""

    patience: int  # frames of the clip after which a track that is not seen ends
    _: KW_ONLY
    predicts: bool  # whether a track is expected where the filter says, not where it was last
    compares_looks: bool  # whether boxes must be alike in their looks too
    pairs: Callable[[FloatArray, float], Pairs]  # chooses pairs, none dearer than `limit`
    limit: float


def tracked(detections: Detections, *, method: str) -> BoxArray:  # (n, 6)
    """Rows of frame, identity, x, y, w, h for all frames of the clip, by one of `METHODS`."""
    tracks = _followed(detections, METHODS[method])
    fewest = max(FEWEST_SIGHTS, SHORTEST // detections.stride)
    lasting = [track for track in tracks if len(track.times) >= fewest]
    rows = [_between(track, identity, detections) for identity, track in enumerate(lasting)]
    return np.concatenate([np.empty((0, 6), dtype=np.int16), *rows])


def _followed(detections: Detections, method: _Method) -> list[_Track]:
    tracks: list[_Track] = []
    for time in range(0, detections.length, detections.stride):
        here = detections.boxes[:, 0] == time
        boxes = detections.boxes[here, 1:].astype(np.float64)
        looks = detections.looks[here].astype(np.float64)
        oldest = time - max(method.patience, detections.stride)
        alive = [track for track in tracks if track.times[-1] >= oldest]
        pairs = _paired(alive, boxes, looks, time, method)
        for row, column in pairs:
            _see(alive[row], time, boxes[column], looks[column])
        known = {column for _, column in pairs}
        tracks += [
            _Track(times=[time], boxes=[box], motion=motion_of(box), look=look)
            for column, (box, look) in enumerate(zip(boxes, looks, strict=True))
            if column not in known
        ]
    return tracks


def _paired(
    alive: Sequence[_Track], boxes: FloatArray, looks: FloatArray, time: int, method: _Method
) -> Pairs:
    if not alive or not len(boxes):
        return []
    expected = np.stack([track.boxes[-1] for track in alive])
    if method.predicts:
        motions = [track.motion.after(time - track.times[-1]) for track in alive]
        expected = np.stack([cornered(motion.x) for motion in motions])
    if not method.compares_looks:
        return method.pairs(1 - iou(expected, boxes), method.limit)
    remembered = np.stack([track.look for track in alive])
    unlike = np.abs(remembered[:, None] - looks[None]).sum(axis=2) / 510  # histograms sum to 255
    costs = (1 - generalised_iou(expected, boxes)) / 4 + unlike / 2  # in [0, 1]
    return method.pairs(costs, method.limit)


def _see(track: _Track, time: int, box: FloatArray, look: FloatArray) -> None:
    track.motion = track.motion.after(time - track.times[-1]).seen(centred(box))
    track.look = FADING * track.look + (1 - FADING) * look
    track.times.append(time)
    track.boxes.append(box)


def _between(track: _Track, identity: int, detections: Detections) -> BoxArray:
    """Its rows, straight on between sights; what is there at the last search stays to the end."""
    ends = track.times[-1] + detections.stride >= detections.length
    times = np.arange(track.times[0], detections.length if ends else track.times[-1] + 1)
    columns = [np.interp(times, track.times, values) for values in np.stack(track.boxes, axis=1)]
    rows = np.stack([times, np.full(len(times), identity), *columns], axis=1)
    return np.asarray(np.rint(rows), dtype=np.int16)


METHODS: Mapping[str, _Method] = {
    "iou": _Method(2, predicts=False, compares_looks=False, pairs=greedy_pairs, limit=0.8),
    "sort": _Method(8, predicts=True, compares_looks=False, pairs=best_pairs, limit=0.85),
    "app": _Method(16, predicts=True, compares_looks=True, pairs=best_pairs, limit=0.5),
}
