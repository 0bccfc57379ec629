"""Messages between one of our processes and one that it started, which may run a user's code.

    message   `_MAGIC`, the number of the request that it belongs to, its length, its bytes

That code may fork, close descriptors, write into them, or stand still in the middle of anything.
The one rule: what is received belongs to the request that was sent last, and is there in time;
all else is an error that names its cause.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import NoReturn, Self

from circinus.pipelines.clock import SystemClock

_MAGIC = b"CIRC"
_HEADER = struct.Struct("!4sQQ")
_LONGEST = 2**40  # bytes of a message: more was no length
_PIECE = 2**20  # bytes received at once
_LOOK_S = 0.1  # between two looks at whether the other side lives
_CLOCK = SystemClock()


class Garbled(Exception):
    """What was received is no message, or belongs to no request that is open."""


class Channel:
    """One end of a pair of sockets. One thread at a time may send, and one receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._file = end, os.fstat(end.fileno()).st_ino
        self._buffer = bytearray()
        self._number = 0

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """Return this process' end, and the one of the process that is started."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    @classmethod
    def at(cls, descriptor: int) -> Self:
        """Return the end that a descriptor is; programs that are called do not inherit it."""
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def ask(self, data: bytes, timeout_s: float | None = None) -> None:
        """Send a request: what is received from now on belongs to it. Raises as `send`."""
        self._number += 1
        self.send(data, timeout_s)

    def send(self, data: bytes, timeout_s: float | None = None) -> None:
        """Send a message that belongs to the open request.

        TimeoutError if the other side does not take it in time, OSError if it is gone.
        """
        self._require_open()
        self._socket.settimeout(timeout_s)
        header = _HEADER.pack(_MAGIC, self._number, len(data))
        if len(data) < _PIECE:
            self._socket.sendall(header + data)  # one piece wakes the other side once
        else:
            self._socket.sendall(header)
            self._socket.sendall(data)
        self._socket.settimeout(None)

    def receive(
        self, timeout_s: float | None = None, ended: Callable[[], bool] = lambda: False
    ) -> bytes:
        """Return the next message of the open request; without a time-out wait for it.

        TimeoutError if it is not there in time; what is there of it stays. EOFError or OSError if
        the other side is gone, also where a copy of it keeps its end open: see `ended`. Garbled
        if it is no such message.
        """
        number, data = self._next(timeout_s, ended)
        if number != self._number:
            self._refuse(f"it belongs to request {number} in place of {self._number}")
        return data

    def requested(self) -> bytes:
        """Return the next request: what is sent from now on belongs to it. Raises as `receive`."""
        self._number, data = self._next(None, lambda: False)
        return data

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _next(self, timeout_s: float | None, ended: Callable[[], bool]) -> tuple[int, bytes]:
        end_s = None if timeout_s is None else _CLOCK.now() + timeout_s
        while (message := self._taken()) is None:
            self._wait(end_s, ended)
            self._require_open()
            with contextlib.suppress(BlockingIOError):  # a copy of this process has taken it
                piece = self._socket.recv(_PIECE, socket.MSG_DONTWAIT)
                if not piece:
                    raise EOFError
                self._buffer += piece
        return message

    def _taken(self) -> tuple[int, bytes] | None:
        """Take a whole message out of what was received; None: there is none yet."""
        if len(self._buffer) < _HEADER.size:
            return None
        magic, number, length = _HEADER.unpack_from(self._buffer)
        if magic != _MAGIC or length > _LONGEST:
            self._refuse("something else was written into its socket")
        whole = _HEADER.size + length
        if len(self._buffer) < whole:
            return None
        data = bytes(memoryview(self._buffer)[_HEADER.size : whole])
        del self._buffer[:whole]
        return number, data

    def _wait(self, end_s: float | None, ended: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            over = ended()
            left_s = _LOOK_S if end_s is None else min(_LOOK_S, end_s - _CLOCK.now())
            if poll.poll(max(left_s, 0.0) * 1000):
                return
            if over:
                raise EOFError
            if end_s is not None and _CLOCK.now() >= end_s:
                raise TimeoutError

    def _require_open(self) -> None:
        """Raise OSError if the descriptor was closed, or is another file by now."""
        if os.fstat(self._socket.fileno()).st_ino != self._file:
            raise OSError("its socket was closed")

    def _refuse(self, cause: str) -> NoReturn:
        raise Garbled(cause)
