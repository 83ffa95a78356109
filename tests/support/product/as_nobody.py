"""Runs a function as an ordinary user: in a forked child that has given up being root."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

NOBODY = 65534


def as_nobody(work: Callable[[], str]) -> str:
    """What the function answers; AssertionError with its traceback if it raises. Only root can call this."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code, said = 1, ""
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code, said = 0, work()
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writing, said.encode())
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said
    return said
