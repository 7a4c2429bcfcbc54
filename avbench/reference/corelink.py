"""One end of the socket pair between the HTTP process and the engine core, and the start of the core. No torch here.

A frame is a 4-byte little-endian length and a pickle (protocol 5). Neither end ever waits in `send`: what the kernel
does not take stays in a buffer and goes out with the next call, so two full buffers cannot block each other.
"""

from __future__ import annotations

import asyncio
import pickle
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

CORE_COMMAND = (sys.executable, "-m", "avbench.reference.core_process")
BUFFER_BYTES = 4 << 20  # asked of the kernel; Linux cuts it to net.core.wmem_max
READ_BYTES = 1 << 20
LENGTH = struct.Struct("<I")


class CoreLink:
    """Framed messages over one stream socket. Not thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        sock.setblocking(False)
        self._sock = sock
        self._unread = bytearray()
        self._unsent = bytearray()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_fd(cls, fd: int) -> CoreLink:
        """Take over an inherited descriptor (the core's side)."""
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd))

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return len(self._unsent)

    def send(self, message: object) -> None:
        """Send without ever waiting. Raises EOFError when the other end is closed."""
        body = pickle.dumps(message, protocol=5)
        self._unsent += LENGTH.pack(len(body))
        self._unsent += body
        self.flush()

    def flush(self) -> None:
        """Hand the kernel what it takes now of earlier sends. Raises EOFError when the other end is closed."""
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            if self._loop is not None:
                self._loop.add_writer(self._sock, self._writable)
        except OSError as error:
            raise EOFError(f"the other end of the core link is closed: {error}") from None

    def receive_all(self, block: bool, *, seconds: float | None = None) -> list[Any]:
        """All complete messages that have arrived, and a `flush`. With `block`, wait until there is at least one, but
        not longer than `seconds` if that is given.

        Raises EOFError when the other end is closed and every message before that was returned.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self.flush_quietly()
            self._read()
            messages = self._complete()
            if messages:
                return messages
            if self._closed:
                raise EOFError("the other end of the core link is closed")
            left = None if deadline is None else deadline - time.monotonic()
            if not block or (left is not None and left <= 0):
                return messages
            self._wait(left)

    def flush_quietly(self) -> None:
        """`flush` for the reading side: the end of the link is found by the read that follows."""
        try:
            self.flush()
        except EOFError:
            self._unsent.clear()

    def attach(
        self, loop: asyncio.AbstractEventLoop, on_messages: Callable[[list[Any]], None], on_close: Callable[[], None]
    ) -> None:
        """Feed an event loop: `on_messages` gets each batch of messages, `on_close` is called once at the end."""

        def readable() -> None:
            try:
                messages = self.receive_all(block=False)
            except EOFError:
                self.close()
                on_close()
                return
            if messages:
                on_messages(messages)

        self._loop = loop
        loop.add_reader(self._sock, readable)

    def close(self) -> None:
        """Leave the event loop and close the descriptor; the other end reads EOF."""
        if self._loop is not None and self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        self._sock.close()

    def _writable(self) -> None:
        self.flush_quietly()
        if not self._unsent and self._loop is not None:
            self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            while not self._closed:
                data = self._sock.recv(READ_BYTES)
                self._unread += data
                self._closed = not data
        except BlockingIOError:
            return
        except ConnectionError:
            self._closed = True

    def _complete(self) -> list[Any]:
        messages: list[Any] = []
        at, have = 0, len(self._unread)
        while have - at >= LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(self._unread, at)[0]
            if end > have:
                break
            messages.append(pickle.loads(memoryview(self._unread)[at + LENGTH.size : end]))
            at = end
        del self._unread[:at]
        return messages

    def _wait(self, seconds: float | None) -> None:
        writers = [self._sock] if self._unsent else []
        select.select([self._sock], writers, [], seconds)


def start_core(command: Sequence[str], argv: Sequence[str]) -> tuple[subprocess.Popen[bytes], CoreLink]:
    """Start `COMMAND --fd N ARGV...` with one end of a fresh socket pair; stderr and environment are inherited."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        fd = theirs.fileno()
        process = subprocess.Popen([*command, "--fd", str(fd), *argv], pass_fds=[fd], stdin=subprocess.DEVNULL)
    return process, CoreLink(ours)
