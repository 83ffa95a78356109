# generated from sdk/_async/processes.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""What one runs in a sandbox: commands, processes, terminals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sandpool.sdk._sync.data_plane import ANSWER as ANSWER_BYTES
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.http import LARGEST
from sandpool.sdk._sync.links import AnswerLink, FedLink, Link
from sandpool.sdk._sync.process import ANSWER, Process
from sandpool.sdk._sync.sources import Source, pieces_of, plain
from sandpool.sdk._sync.stream import Stream
from sandpool.sdk._sync.terminal import Terminal
from sandpool.sdk.answers import read_object, understood
from sandpool.sdk.capture import Capture
from sandpool.sdk.command import INLINE, inline, named, spec_of
from sandpool.sdk.errors import RouterError
from sandpool.sdk.outcome import checked, command_error
from sandpool.sdk.values import DEFAULT_MAX_OUTPUT, Command, ProcessInfo, Result
from sandpool.wire.frames import encode
from sandpool.wire.paths import PROCESSES

PIECE = 128 * 1024
KEEP = 4 << 20
"""Bytes of output that a process of `start` keeps for those who read later."""

SHELL = 'exec "$(command -v bash || echo sh)" -l'
"""bash where there is one."""


def _part(id: str) -> str:
    """As one part of a path."""
    return quote(id, safe="") or "-"


class Commands:
    """The part of a sandbox that runs things. `_plane` leads to it, `_env` is what every command gets."""

    _plane: DataPlane
    _env: Mapping[str, str]

    def run(
        self,
        command: Command,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Source | None = None,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = DEFAULT_MAX_OUTPUT,
    ) -> Result:
        """Runs a command to its end and gives its exit code and output.

        Text goes through `/bin/sh -c`, a list is run as it is. `cwd` is relative to the sandbox's home; `env` is added to the
        sandbox's environment; `stdin` is bytes, text, an open file or an iterator of bytes, of any size.

        After `timeout` seconds the command is ended with all that it has started: the result has `timed_out` set and what was
        said until then. With `check`, CommandTimeout is raised instead, CommandFailed for any exit code but 0, and OutOfMemory
        if the sandbox's memory was used up. A list whose program the sandbox does not have raises CommandNotFound; text does so
        with `check`. Of each of stdout and stderr at most `max_output` bytes are kept: the beginning and the end. A child that
        the command leaves in the background is not waited for. If the connection is lost, the command ends, and CommandLost is
        raised; if that is because the sandbox ended, SandboxRestarted, SandboxReplaced or SandboxGone says so.
        """
        if max_output < 2:
            raise ValueError(f"max_output is {max_output}; give at least 2 bytes")
        kept = {"stdout": Capture(max_output), "stderr": Capture(max_output)}
        with self.stream(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout) as stream:
            for output in stream:
                kept[output.stream].add(output.data)
        end = stream.exit
        assert end is not None
        out, err = kept["stdout"].done(), kept["stderr"].done()
        result = Result(stream.command, end.code, out, err, end.signal, end.timed_out, out_of_memory=end.out_of_memory)
        return checked(result, str(self._plane)) if check else result

    def stream(
        self,
        command: Command,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Source | None = None,
        timeout: float | None = None,
    ) -> Stream:
        """The output of a command as it comes: iterate over it, then look at its `exit`.

        It starts with the iteration, or with the `with` around it; leaving either early ends the command. Arguments are
        those of `run`.
        """
        spec = spec_of(command, cwd=cwd, env={**self._env, **(env or {})}, timeout=timeout)
        whole = plain(stdin) if stdin is not None else None
        if whole is not None and len(whole) <= INLINE:
            spec["stdin"] = inline(whole)
            stdin = None

        def opening() -> Link:
            try:
                if stdin is None:
                    return AnswerLink.open(self._plane, "POST", PROCESSES, encode(spec))
                fed = {**spec, "stdin": True}
                return FedLink.open(self._plane, f"{PROCESSES}/start", fed, pieces_of(stdin, PIECE))
            except RouterError as error:
                raise self._plane.explained(command_error(error)) from None

        return Stream(named(command), str(self._plane), opening, self._plane.explained, timeout)

    def start(
        self,
        command: Command,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bool = True,
        keep: int = KEEP,
    ) -> Process:
        """Starts a command that goes on by itself, and gives a handle to it.

        It survives lost connections and the end of this program; `process(id)` comes back to it. Without `stdin` it has none.
        `keep` is how many bytes of output stay for those who read later.
        """
        spec = spec_of(command, cwd=cwd, env={**self._env, **(env or {})}, timeout=timeout)
        return Process(self._plane, self._start({**spec, "stdin": stdin, "keep": keep}))

    def process(self, id: str, *, position: int = 0) -> Process:
        """A process that was started before, here or elsewhere. Its output is read from `position` on: 0 is the oldest that is
        kept; the `position` of another handle goes on where that one was."""
        value = self._ask("GET", f"{PROCESSES}/{_part(id)}")
        return Process(self._plane, ProcessInfo.of(value), position)

    def processes(self) -> list[ProcessInfo]:
        """All that run, and the newest 256 that have ended. What `run` and `stream` started is among them."""
        value = self._ask("GET", PROCESSES, limit=LARGEST)
        with understood():
            return [ProcessInfo.of(one) for one in value["processes"]]

    def terminal(
        self,
        command: Command | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        id: str | None = None,
        position: int = 0,
    ) -> Terminal:
        """A terminal with a program on it: the shell of the sandbox, or `command`. With an `id`, one that was left with
        `detach`, from `position` on."""
        size = {"cols": cols, "rows": rows}
        if id is not None:
            terminal = Terminal(self._plane, ProcessInfo.of(self._ask("GET", f"{PROCESSES}/{_part(id)}")), position)
            terminal.resize(cols, rows)
            return terminal
        spec = spec_of(command or SHELL, cwd=cwd, env={**self._env, **(env or {})})
        return Terminal(self._plane, self._start({**spec, "terminal": size}))

    def _start(self, spec: dict[str, Any]) -> ProcessInfo:
        return ProcessInfo.of(self._ask("POST", PROCESSES, {**spec, "detach": True}))

    def _ask(
        self, method: str, path: str, value: dict[str, Any] | None = None, limit: int = ANSWER_BYTES
    ) -> dict[str, Any]:
        headers = (("Content-Type", "application/json"),) if value is not None else ()
        body = encode(value) if value is not None else b""
        try:
            answer = self._plane.request(method, path, headers, body, timeout=ANSWER, limit=limit)
        except RouterError as error:
            raise self._plane.explained(command_error(error, process=method == "GET")) from None
        return read_object(answer.body)
