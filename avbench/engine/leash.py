"""Runs an engine and makes sure that it ends: started as a script, standard library only.

`python -I -S leash.py STATUS_FD COMMAND...` starts COMMAND in a process group of its own and waits. Its standard input
is a pipe whose other end only avbench holds: end of file there means that avbench let go or is gone, even by SIGKILL,
and everything the command started is killed at once. A pipe works on every Unix; on Linux the leash also adopts
orphans (`PR_SET_CHILD_SUBREAPER`), so that workers that left the group by `setsid` are found, and the command dies with
the leash (`PR_SET_PDEATHSIG`).

It writes two lines to STATUS_FD: `pid N` and, when the command has ended, `exit CODE` (negative: the signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
ORPHAN_GRACE = 0.5  # s that workers get to end by themselves after their parent
KILL_ROUNDS = 100  # x 20 ms until killed processes must be gone


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Living processes below `root`, children before grandchildren; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _start(command: Sequence[str]) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child may have done it, or be gone, already
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"cannot start `{command[0]}`: {error.strerror}\n".encode())
    os._exit(127)


def _kill_all(group: int) -> None:
    for _ in range(KILL_ROUNDS):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not _reap()[1]:
            return
        time.sleep(0.02)


def _reap() -> tuple[dict[int, int], bool]:
    """Collect ended children: their exit codes (negative: the signal), and whether any child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def main(argv: Sequence[str]) -> int:
    """Run the command, report, and leave nothing behind."""
    status_fd, command = int(argv[0]), argv[1:]
    os.set_inheritable(status_fd, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    engine = _start(command)
    os.write(status_fd, f"pid {engine}\n".encode())
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            ended, orphans = _reap()
            if engine in ended:
                _report(status_fd, ended[engine])
                time.sleep(ORPHAN_GRACE if orphans else 0.0)
                break
        if 0 in ready and not os.read(0, 4096):
            break
    _kill_all(engine)
    return 0


def _report(status_fd: int, code: int) -> None:
    with contextlib.suppress(OSError):  # avbench may be gone
        os.write(status_fd, f"exit {code}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
