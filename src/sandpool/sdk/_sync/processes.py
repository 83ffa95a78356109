# generated from sdk/_async/processes.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Runs commands, processes and terminals in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sandpool.sdk._sync.data_plane import ANSWER as ANSWER_BYTES
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.frame_streams import FedFrames, FrameStream, ResponseFrames
from sandpool.sdk._sync.http import LARGEST
from sandpool.sdk._sync.process import ANSWER, Process
from sandpool.sdk._sync.sources import Source, pieces_of, plain
from sandpool.sdk._sync.stream import Stream
from sandpool.sdk._sync.terminal import Terminal
from sandpool.sdk.answers import read_object, understood
from sandpool.sdk.command import INLINE, inline, named, spec_of
from sandpool.sdk.errors import RouterError
from sandpool.sdk.outcome import Capture, checked, command_error
from sandpool.sdk.values import DEFAULT_MAX_OUTPUT, Command, ProcessInfo, Result
from sandpool.wire.frames import encode
from sandpool.wire.paths import PROCESSES

PIECE = 128 * 1024
KEEP = 4 << 20
"""Bytes of output that a process of `start` keeps for later readers."""

SHELL = 'exec "$(command -v bash || echo sh)" -l'
"""bash if the sandbox has it, else sh."""


def _part(id: str) -> str:
    """As one part of a path."""
    return quote(id, safe="") or "-"


class Commands:
    """The part of a sandbox that runs commands. `_plane` leads to the sandbox, `_env` is added to every command."""

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
        """Runs a command until it exits and returns its exit code and output.

        Text runs through `/bin/sh -c`; a list runs without a shell. `cwd` is relative to the sandbox's home; `env` is added to the
        sandbox's environment; `stdin` is bytes, text, an open file or an iterator of bytes, of any size.

        After `timeout` seconds the command is killed with everything it has started; the result then has `timed_out` set and the
        output so far. With `check`, raises CommandFailed if the command exits non-zero, CommandTimeout if it timed out, and
        OutOfMemory if the sandbox ran out of memory. CommandNotFound is raised for a list whose program does not exist, and with
        `check` also for text. At most `max_output` bytes each of stdout and stderr are kept: the beginning and the end. Children
        left in the background are not waited for. If the connection is lost, the command is killed and CommandLost is raised; if
        that is because the sandbox ended, SandboxRestarted, SandboxReplaced or SandboxGone is raised instead.
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
        """Runs a command and streams its output: iterate over it, then look at its `exit`.

        The command starts with the iteration, or with the `with` around it; leaving either early kills the command. Arguments
        are those of `run`.
        """
        spec = spec_of(command, cwd=cwd, env={**self._env, **(env or {})}, timeout=timeout)
        whole = plain(stdin) if stdin is not None else None
        if whole is not None and len(whole) <= INLINE:
            spec["stdin"] = inline(whole)
            stdin = None

        def opening() -> FrameStream:
            try:
                if stdin is None:
                    return ResponseFrames.open(self._plane, "POST", PROCESSES, encode(spec))
                fed = {**spec, "stdin": True}
                return FedFrames.open(self._plane, f"{PROCESSES}/start", fed, pieces_of(stdin, PIECE))
            except RouterError as error:
                raise self._plane.explain(command_error(error)) from None

        return Stream(named(command), str(self._plane), opening, self._plane.explain, timeout)

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
        """Starts a command in the background and returns a handle to it.

        It survives lost connections and the end of your program; reattach with `process(id)`. Without `stdin` its standard input is
        empty. `keep` is how many bytes of output are kept for later readers.
        """
        spec = spec_of(command, cwd=cwd, env={**self._env, **(env or {})}, timeout=timeout)
        return Process(self._plane, self._start({**spec, "stdin": stdin, "keep": keep}))

    def process(self, id: str, *, position: int = 0) -> Process:
        """Reattaches to a process that was started earlier, here or elsewhere. Reads its output from `position`: 0 is the oldest that
        is kept; pass the `position` of another handle to continue there.
        """
        value = self._ask("GET", f"{PROCESSES}/{_part(id)}")
        return Process(self._plane, ProcessInfo.of(value), position)

    def processes(self) -> list[ProcessInfo]:
        """Lists all running processes and the newest 256 that have ended, including those of `run` and `stream`."""
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
        """Opens a terminal that runs a shell, or `command`. With an `id`, reattaches to one that was left with `detach`, from
        `position` on.
        """
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
            raise self._plane.explain(command_error(error, process=method == "GET")) from None
        return read_object(answer.body)
