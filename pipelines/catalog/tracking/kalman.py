"""Where a box will be: a Kalman filter of constant velocity.

Each of the four coordinates has a position and a velocity of its own and all are seen at once, so
one 2 x 2 covariance serves all four: Bewley et al. 2016 (SORT) keep a 7 x 7 one, from which this
deviates by letting shape and size drift as centres do.

Notation: `x` (4,) centre and size, `v` (4,) velocity per frame; `[[a, b], [b, c]]` covariance of
position and velocity; `Q` variance of the acceleration, `R` of what is seen; `t` frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.catalog.tracking.handed_over import FloatArray

Q = 0.5
"""(pixels per frame^2)^2: sprites turn and rest."""
R = 9.0
"""pixels^2: edges of a mask are off by about 3 pixels."""
FIRST_SPEED = 16.0
"""(pixels per frame)^2, variance of the velocity of what was seen once."""


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
        surprise = x - self.x
        return Motion(
            x=self.x + gain_x * surprise,
            v=self.v + gain_v * surprise,
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
