"""The older HTTP runtime: commands without a shell, files below one directory, errors as plain messages."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sandpool.boxd.compat.multipart import Form
from sandpool.boxd.files import read, write
from sandpool.boxd.files.root import Place, Root
from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.reply import Answer, Reply, json_reply
from sandpool.boxd.processes.output import Piece
from sandpool.boxd.processes.spec import MOST_KEPT, Spec
from sandpool.boxd.processes.table import Table
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import Kind

_STATUS = {Code.DENIED: (403, "Access denied"), Code.NOT_FOUND: (404, "File not found")}


class HttpRuntime:
    def __init__(self, root: Root, table: Table, patience: float) -> None:
        self._root = root
        self._table = table
        self._patience = patience

    async def serve(self, request: Request, path: str) -> Answer:
        method = request.head.method
        part, _, rest = path[1:].partition("/")
        rest = rest.lstrip("/")
        match (method, part):
            case ("GET" | "HEAD", ""):
                return json_reply({"status": "ok", "message": "Sandbox Runtime is active."})
            case ("POST", "execute"):
                return await self._execute(request)
            case ("POST", "upload"):
                return await self._upload(request)
            case ("GET" | "HEAD", "download"):
                return self._download(request, rest)
            case ("GET", "list"):
                return await self._list(rest)
            case ("GET", "exists"):
                return self._exists(rest)
        raise Refused(Code.NOT_FOUND, f"nothing is served at {path!r}")

    async def _execute(self, request: Request) -> Answer:
        value = await request.body.value(16 << 20)
        command = value.get("command")
        if not isinstance(command, str):
            detail = [{"type": "missing", "loc": ["body", "command"], "msg": "Field required", "input": None}]
            return json_reply({"detail": detail}, 422)
        try:
            argv = tuple(shlex.split(command))
            if not argv:
                raise ValueError("the command is empty")
            limit = _seconds(value.get("timeout_seconds")) or self._patience
            return json_reply(await self._run(argv, limit, request.gone))
        except (ValueError, Refused) as error:
            return json_reply({"stdout": "", "stderr": f"Failed to execute command: {error}", "exit_code": 1})

    async def _run(self, argv: tuple[str, ...], limit: float, gone: asyncio.Event) -> dict[str, Any]:
        """Runs a command; after a timeout, returns the output so far. A child left in the background does not delay the response."""
        process = self._table.start(Spec(argv, cwd=self._root.path, timeout=limit, keep=MOST_KEPT))
        out: dict[Kind, list[bytes]] = {Kind.STDOUT: [], Kind.STDERR: []}
        hung_up = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait((process.ended, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if not process.ended.done():
                raise ConnectionResetError("the client hung up")
            async with aclosing(process.output.follow(0, wait=False)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Piece):
                        out[piece.kind].append(piece.data)
        finally:
            hung_up.cancel()
            self._table.remove(process.id)
        end = process.ended.result()
        result: dict[str, Any] = {
            "stdout": b"".join(out[Kind.STDOUT]).decode("utf-8", "replace"),
            "stderr": b"".join(out[Kind.STDERR]).decode("utf-8", "replace"),
            "exit_code": end.code,
        }
        return result | {"timed_out": True} if end.timed_out else result

    async def _upload(self, request: Request) -> Answer:
        async with aclosing(request.body.pieces()) as pieces:
            try:
                form = Form(request.head.headers.get("content-type", ""), pieces)
                name = (await form.part("file")).lstrip("/")
                await write.put(self._root, name, write.poured(form.content()))
                await form.rest()
            except Refused as error:
                if error.code is Code.DENIED:
                    return _said(403, "Access denied")
                return _said(500, f"File upload failed: {error}")
        return _said(200, f"File '{name}' uploaded successfully.")

    def _download(self, request: Request, path: str) -> Answer:
        try:
            answer = read.download(self._root, path, request.head.headers.get("range", ""))
        except Refused as error:
            if error.code is Code.INVALID:  # a directory
                return _said(404, "File not found")
            return _refusal(error)
        name = os.path.basename(path).replace('"', "%22")
        headers = {**answer.headers, "content-disposition": f'attachment; filename="{name}"'}
        return replace(answer, headers=headers)

    async def _list(self, path: str) -> Answer:
        try:
            return json_reply(await asyncio.to_thread(read.entries, self._root, path, self._entry(path)))
        except Refused as error:
            if error.code in (Code.INVALID, Code.NOT_FOUND):
                return _said(404, "Path is not a directory")
            return _refusal(error) if error.code is Code.DENIED else _said(500, f"List files failed: {error}")

    def _entry(self, directory: str) -> Any:
        def describe(place: Place, name: str) -> dict[str, Any]:
            found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                try:
                    with self._root.opened(f"{directory}/{name}", os.O_PATH) as fd:
                        found = os.fstat(fd)
                except Refused:  # a dangling symlink is still listed
                    pass
            kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
            return {"name": name, "size": found.st_size, "type": kind, "mod_time": found.st_mtime}

        return describe

    def _exists(self, path: str) -> Answer:
        try:
            read.stat_of(self._root, path)
        except Refused as error:
            if error.code is Code.DENIED:
                return _said(403, "Access denied")
            return json_reply({"path": path, "exists": False})
        return json_reply({"path": path, "exists": True})


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("timeout_seconds must be a number above 0")
    return float(value)


def _said(status: int, words: str) -> Reply:
    return json_reply({"message": words}, status)


def _refusal(error: Refused) -> Reply:
    status, words = _STATUS.get(error.code, (error.code.status, error.message))
    return _said(status, words)
