"""Dispatches requests: our own protocol under /box/v1, and beside it the two protocols that existing clients speak."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandpool.boxd.compat.http_runtime import HttpRuntime
from sandpool.boxd.compat.sandboxd import SandboxdFiles
from sandpool.boxd.files.root import Root
from sandpool.boxd.files.serve import FileRequests
from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.reply import Answer, json_reply
from sandpool.boxd.ports import connect
from sandpool.boxd.processes.memory import MemoryKills
from sandpool.boxd.processes.serve import ProcessRequests
from sandpool.boxd.processes.table import Table
from sandpool.wire import paths
from sandpool.wire.codes import Code, Refused
from sandpool.wire.headers import INCARNATION
from sandpool.wire.incarnation import incarnation


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of one boxd; it does not change while it runs."""

    root: str = "/"  # files and working directories are confined to this directory
    home: str = ""  # where relative paths begin and commands start; empty: the root
    token: str = field(default="", repr=False)  # empty: everybody who reaches the socket is let in
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the processes that it starts
    shown: str = "SANDBOX_"  # which variables /v1/metadata shows
    patience: float = 300.0  # default timeout in seconds for commands of the older protocol
    memory: int | None = None  # descriptor of a file that counts OOM kills (processes/memory.py)


class App:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = time.monotonic()
        self.incarnation = incarnation(time.time(), os.urandom(8))
        self._home = settings.home or settings.root
        if not os.path.isdir(self._home):
            os.makedirs(self._home, mode=0o755, exist_ok=True)
        self._root = Root(settings.root)
        self.table = Table(settings.environment, self._place, MemoryKills(settings.memory))
        self._processes = ProcessRequests(self.table)
        self._files = FileRequests(self._root, self._absolute)
        home = Root(self._home)
        self._home_root = home
        self._http_runtime = HttpRuntime(home, self.table, settings.patience)
        self._sandboxd = SandboxdFiles(home, settings.environment, settings.shown)

    def _place(self, cwd: str) -> int:
        """Opens the working directory, so that it cannot be replaced before the program starts."""
        try:
            with self._root.opened(self._absolute(cwd), os.O_PATH | os.O_DIRECTORY) as directory:
                return os.dup(directory)
        except Refused as error:
            raise Refused(error.code, f"cwd: {error}") from None

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._home.rstrip('/')}/{path}"

    async def handle(self, request: Request) -> Answer:
        path = request.head.path
        if not path.startswith(paths.BASE + "/"):
            return await self._compatible(request, path)
        self._check_incarnation(request)
        part, _, rest = path[len(paths.BASE) + 1 :].partition("/")
        match part:
            case "health":
                return json_reply(self._health(), 503 if self.table.closing else 200)
            case "processes":
                return await self._processes.serve(request, rest.split("/") if rest else [])
            case "files":
                relative = request.head.flag("relative")
                return await self._files.serve(request, self._absolute(rest if relative else f"/{rest}"))
            case "ports":
                return await connect(request, rest)
        raise Refused(Code.NOT_FOUND, f"nothing is served at {path!r}")

    def _check_incarnation(self, request: Request) -> None:
        meant = request.head.headers.get(INCARNATION.lower())
        if meant is not None and meant != self.incarnation:
            raise Refused(
                Code.RESTARTED,
                "the sandbox was restarted: this request was meant for an earlier run of boxd, and nothing was done",
            )

    async def _compatible(self, request: Request, path: str) -> Answer:
        if path == "/v1/health":
            if self.table.closing:
                raise Refused(Code.UNAVAILABLE, "the sandbox is being shut down")
            return json_reply({"status": "ok", "uptime_seconds": int(time.monotonic() - self._started)})
        if path.startswith("/v1/"):
            return await self._sandboxd.serve(request, path[len("/v1/") :])
        return await self._http_runtime.serve(request, path)

    def _health(self) -> dict[str, object]:
        running = sum(not process.ended.done() for process in self.table.all())
        status = "closing" if self.table.closing else "ok"
        return {"status": status, "uptime": round(time.monotonic() - self._started, 3), "processes": running}

    async def close(self) -> None:
        await self.table.close()

    def release(self) -> None:
        """Closes its directories; call it when no connection is left."""
        self._root.close()
        self._home_root.close()
