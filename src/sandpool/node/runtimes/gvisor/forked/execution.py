"""A command in a running container. Its start is told when runsc writes down its number; until then, its end is the answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from sandpool.node.runtimes.gvisor.forked import command, terminals
from sandpool.node.runtimes.gvisor.forked.command import FIRST_GIVEN
from sandpool.node.runtimes.gvisor.forked.words import explain
from sandpool.node.runtimes.namespaces.forked.frames import Message

Order = dict[str, Any]


class Above(Protocol):
    """What it asks of the keeper."""

    def runsc(self, argv: list[str], done: Callable[[int, str, str], object], **more: Any) -> None: ...

    def tell(self, message: Message, files: list[int] | None = None) -> None: ...

    def when(self, file: int, then: Callable[[], object]) -> None:
        """Calls back when the file can be read, until it is forgotten."""
        ...

    def forget(self, file: int) -> None: ...


class Execution:
    def __init__(self, above: Above, order: Order) -> None:
        self._above = above
        self._order = order
        self._asked = True  # whether the number is still to come; that of the file may be another's after
        self._watched = self._running = False
        self._started, self._report = os.pipe2(os.O_CLOEXEC)
        self._master, self._slave = -1, -1

    def begin(self, files: list[int]) -> None:
        tty = self._order["tty"]
        command.readable_by_all(self._report)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        opened = [null, self._report]
        try:
            if tty:
                self._master, self._slave = terminals.pair()
                opened.append(self._slave)
            given: list[int | None] = [self._slave] * 3 if tty else command.stdio(self._order["stdio"], files)
            passed = [self._report, *(null if each is None else each for each in given)]
            self._above.when(self._started, self._heard)
            self._watched = True
            self._above.runsc(
                self._argv(tty=tty), self._done, order={"files": {"process.json": self._order["process"]}},
                passed=passed, stdio=given if tty else None,
            )  # fmt: skip
        except BaseException:
            if not self._watched:
                os.close(self._started)
            raise
        finally:
            for file in opened:
                os.close(file)

    def _argv(self, *, tty: bool) -> list[str]:
        """Without a terminal the command's files are passed beside runsc's own, which says there what went wrong."""
        passing = [] if tty else [f"--pass-fd={FIRST_GIVEN + 1 + each}:{each}" for each in range(3)]
        number = f"--internal-pid-file=/proc/self/fd/{FIRST_GIVEN}"
        return ["exec", "--process=/bundle/process.json", number, *passing, self._order["name"]]

    def _heard(self) -> None:
        self._asked = False
        self._above.forget(self._started)
        inside = os.read(self._started, 32)
        os.close(self._started)
        if not inside.isdigit():
            return
        self._running = True
        self._above.tell({"id": self._order["id"], "pid": int(inside)}, [self._master] if self._master >= 0 else [])
        self._close_master()

    def _done(self, code: int, said: str, log: str) -> None:
        if self._asked:
            self._heard()
        if self._running:
            self._above.tell({"ended": self._order["number"], "code": code})
            return
        process = self._order["process"]
        self._above.tell({"id": self._order["id"], "refused": explain(code, log, process["args"], process["cwd"])})
        self._close_master()

    def _close_master(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
