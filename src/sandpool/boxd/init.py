"""The first process of a container has to reap every orphan; boxd is then its child and need not."""

from __future__ import annotations

import os
import signal


def become_child_of_init() -> None:
    """As process 1: forks, and returns in the child. The parent passes signals on, reaps, and ends as the child does."""
    if os.getpid() != 1:
        return
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: _pass_on(child, received))
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            os._exit(1)
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _pass_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass
