"""Operator `tracker`: which boxes of different frames are the same object.

Frame after frame, boxes are paired with the tracks alive; a box without a track starts one, a
track without a box waits for some frames. The three methods differ in where they expect a track
and in what they call alike.

    iou   where it was last; the IoU, greedily (Bochinski et al. 2017)
    sort  where a Kalman filter predicts; the IoU, by least total cost (Bewley et al. 2016)
    app   the same; half generalised IoU, half grey histogram, so that what jumped farther than
          its size, or was hidden for long, is found again by its look (as Wojke et al. 2017 do)

The filter takes a constant velocity. Each of the four coordinates has a position and a velocity of
its own and all are measured at once, so one 2 x 2 covariance serves all four: Bewley et al. keep a
7 x 7 one, from which this deviates by letting shape and size drift as centres do.

Notation: `x` (4,) centre and size, `v` (4,) velocity per frame; `[[a, b], [b, c]]` covariance of
position and velocity; `Q` variance of the acceleration, `R` of a measurement; `t` frames.

How much boxes (x, y, w, h) have in common, which go together at what cost, and the metric IDF1.

Ristani et al. 2016, "Performance measures and a data set for multi-target, multi-camera tracking",
section 3.

Notation: `N[i, j]` frames in which true identity i and found identity j overlap with an IoU of at
least 0.5; `IDTP` the most frames that pairs of identities, each used once, agree in; then
`IDF1 = 2 IDTP / (true boxes + found boxes)`. The paper's least false positives and negatives are
the most IDTP, as each frame more that agrees takes one of either away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from circinus.pipelines.catalog.tracking.footage import BoxArray, Detections, FloatArray


def iou(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, 4), (m, 4) -> (n, m)
    """Return intersection over union, in [0, 1]."""
    common, union, _ = _areas(a, b)
    return common / union


def generalised_iou(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, 4), (m, 4) -> (n, m)
    """Return the IoU less the share of the box around both that is in neither, in (-1, 1].

    Below 0 it separates near boxes from far, both of IoU 0 (Rezatofighi et al. 2019, algorithm 1).
    """
    common, union, around = _areas(a, b)
    return common / union - (around - union) / around


def _areas(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return areas of intersection, union and the smallest box around both, (n, m) each."""
    low_a, low_b = a[:, None, :2], b[None, :, :2]
    high_a, high_b = low_a + a[:, None, 2:], low_b + b[None, :, 2:]
    sides = np.minimum(high_a, high_b) - np.maximum(low_a, low_b)
    common = np.maximum(sides, 0).prod(axis=2)
    union = a[:, 2:].prod(axis=1)[:, None] + b[:, 2:].prod(axis=1)[None] - common
    around = (np.maximum(high_a, high_b) - np.minimum(low_a, low_b)).prod(axis=2)
    return common, union, around


Pairs = list[tuple[int, int]]  # (row, column), no row or column twice


def greedy_pairs(costs: FloatArray, limit: float) -> Pairs:  # (n, m)
    """Return pairs, the cheapest of those left at each step; none dearer than the limit."""
    rows, columns = set[int](), set[int]()
    pairs: Pairs = []
    for place in np.argsort(costs, axis=None, kind="stable").tolist():
        row, column = divmod(place, costs.shape[1])
        if costs[row, column] > limit:
            break
        if row not in rows and column not in columns:
            pairs.append((row, column))
            rows.add(row)
            columns.add(column)
    return pairs


def best_pairs(costs: FloatArray, limit: float) -> Pairs:  # (n, m)
    """Return the pairs of least cost in all, where going unpaired costs the limit for each row."""
    from scipy.optimize import linear_sum_assignment  # slow to import: only where it is used

    rows, columns = linear_sum_assignment(np.minimum(costs, limit))
    chosen = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in chosen if costs[row, column] <= limit]


HIT = 0.5  # IoU from which on a box counts as found


def idf1(predicted: BoxArray, true: BoxArray) -> float:  # (n, 6): frame, identity, x, y, w, h
    """Return the share of boxes under the right identity, in [0, 1]; 1 if there are none."""
    from scipy.optimize import linear_sum_assignment  # slow to import: only where it is used

    if not len(true) or not len(predicted):
        return float(len(true) == len(predicted))
    N = _agreeing_frames(predicted, true)
    IDTP = N[linear_sum_assignment(N, maximize=True)].sum()
    return float(2 * IDTP / (len(true) + len(predicted)))


def _agreeing_frames(predicted: BoxArray, true: BoxArray) -> FloatArray:
    true_ids, i = np.unique(true[:, 1], return_inverse=True)
    predicted_ids, j = np.unique(predicted[:, 1], return_inverse=True)
    N = np.zeros((len(true_ids), len(predicted_ids)))
    for time in np.unique(true[:, 0]):
        here, there = true[:, 0] == time, predicted[:, 0] == time
        hits = (
            iou(true[here, 2:].astype(np.float64), predicted[there, 2:].astype(np.float64)) >= HIT
        )
        N[np.ix_(i[here], j[there])] += hits
    return N


Q = 0.5  # (pixels per frame^2)^2: sprites turn and rest
R = 9.0  # pixels^2: edges of a mask are off by about 3 pixels
FIRST_SPEED = 16.0  # (pixels per frame)^2, variance of the velocity after one measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """The filter's estimate of a box at one time."""

    x: FloatArray
    v: FloatArray
    a: float = R
    b: float = 0.0
    c: float = FIRST_SPEED

    def after(self, t: float) -> Motion:
        """Return the estimate `t` frames later, without a measurement."""
        return Motion(
            x=self.x + t * self.v,
            v=self.v,
            a=self.a + 2 * t * self.b + t * t * self.c + Q * t**4 / 4,
            b=self.b + t * self.c + Q * t**3 / 2,
            c=self.c + Q * t * t,
        )

    def measured(self, x: FloatArray) -> Motion:
        """Return the estimate after a measurement `x`."""
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
    """Return the estimate of a box (x, y, w, h) after one measurement."""
    return Motion(x=centred(box), v=np.zeros(4))


def centred(box: FloatArray) -> FloatArray:
    """Return centre and size of a box (x, y, w, h)."""
    return np.concatenate([box[:2] + box[2:] / 2, box[2:]])


def cornered(x: FloatArray) -> FloatArray:
    """Return the box (x, y, w, h) of a centre and size; never smaller than a pixel."""
    size = np.maximum(x[2:], 1.0)
    return np.concatenate([x[:2] - size / 2, size])


FADING = 0.8  # weight of the earlier look of a track against the latest one


@dataclass(slots=True, kw_only=True)
class _Track:
    """One object so far: when and where it was detected, where it is expected, its look."""

    times: list[int]
    boxes: list[FloatArray]
    motion: Motion
    look: FloatArray


@dataclass(frozen=True, slots=True)
class TrackingMethod:
    """What makes a tracker."""

    patience: int  # frames of the clip after which an undetected track ends
    _: KW_ONLY
    predicts: bool  # whether a track is expected where the filter predicts, not where it was last
    pairs: Callable[[FloatArray, float], Pairs]  # chooses pairs, none dearer than `limit`
    limit: float  # of the cost of a pair, in [0, 1]
    # (n, k), (m, k) -> (n, m): how unlike looks are, in [0, 1]; None: looks do not count
    unlike: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    # a track must be detected in so many searched frames, and in a span of so many frames of the
    # clip if it is detected in all: others are taken for noise
    fewest_sights: int = 3
    shortest: int = 8


def tracked(detections: Detections, *, method: str) -> BoxArray:  # (n, 6)
    """Return rows of frame, identity, x, y, w, h of all frames, by one of `METHODS`."""
    return tracks_of(detections, METHODS[method])


def tracks_of(detections: Detections, method: TrackingMethod) -> BoxArray:  # (n, 6)
    """Return rows of frame, identity, x, y, w, h of all frames, by a method."""
    tracks = _followed(detections, method)
    fewest = max(method.fewest_sights, method.shortest // detections.stride)
    lasting = [track for track in tracks if len(track.times) >= fewest]
    rows = [_between(track, identity, detections) for identity, track in enumerate(lasting)]
    return np.concatenate([np.empty((0, 6), dtype=np.int16), *rows])


def _followed(detections: Detections, method: TrackingMethod) -> list[_Track]:
    tracks: list[_Track] = []
    for time in range(0, detections.length, detections.stride):
        here = detections.boxes[:, 0] == time
        boxes = detections.boxes[here, 1:].astype(np.float64)
        looks = detections.looks[here].astype(np.float64)
        oldest = time - max(method.patience, detections.stride)
        alive = [track for track in tracks if track.times[-1] >= oldest]
        pairs = _paired(alive, boxes, looks, time, method)
        for row, column in pairs:
            _update(alive[row], time, boxes[column], looks[column])
        known = {column for _, column in pairs}
        tracks += [
            _Track(times=[time], boxes=[box], motion=motion_of(box), look=look)
            for column, (box, look) in enumerate(zip(boxes, looks, strict=True))
            if column not in known
        ]
    return tracks


def _paired(
    alive: Sequence[_Track],
    boxes: FloatArray,
    looks: FloatArray,
    time: int,
    method: TrackingMethod,
) -> Pairs:
    if not alive or not len(boxes):
        return []
    expected = np.stack([track.boxes[-1] for track in alive])
    if method.predicts:
        motions = [track.motion.after(time - track.times[-1]) for track in alive]
        expected = np.stack([cornered(motion.x) for motion in motions])
    if method.unlike is None:
        return method.pairs(1 - iou(expected, boxes), method.limit)
    remembered = np.stack([track.look for track in alive])
    unlike = method.unlike(remembered, looks)
    costs = (1 - generalised_iou(expected, boxes)) / 4 + unlike / 2  # in [0, 1]
    return method.pairs(costs, method.limit)


def _update(track: _Track, time: int, box: FloatArray, look: FloatArray) -> None:
    track.motion = track.motion.after(time - track.times[-1]).measured(centred(box))
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


def unlike_histograms(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, k), (m, k) -> (n, m)
    """Return half the difference of histograms that sum to 255, in [0, 1]."""
    return np.asarray(np.abs(a[:, None] - b[None]).sum(axis=2) / 510)


METHODS: Mapping[str, TrackingMethod] = {
    "iou": TrackingMethod(2, predicts=False, pairs=greedy_pairs, limit=0.8),
    "sort": TrackingMethod(8, predicts=True, pairs=best_pairs, limit=0.85),
    "app": TrackingMethod(
        16, predicts=True, pairs=best_pairs, limit=0.5, unlike=unlike_histograms
    ),
}
