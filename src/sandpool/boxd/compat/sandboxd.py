"""Files and metadata as the runtime sandboxd serves them over REST."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from sandpool.boxd.compat.multipart import Form
from sandpool.boxd.files import read, write
from sandpool.boxd.files.root import Place, Root
from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.reply import Answer, Reply, json_reply
from sandpool.wire.codes import Code, Refused

_MODE = re.compile(r"0[0-7]{3}")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CRED|KEY|AUTH|BEARER|PRIVATE|CERT", re.IGNORECASE)
_YES, _NO = ("1", "t", "T", "TRUE", "true", "True"), ("", "0", "f", "F", "FALSE", "false", "False")


class SandboxdFiles:
    def __init__(self, root: Root, environment: Mapping[str, str], shown: str) -> None:
        self._root = root
        prefix = shown or "SANDBOX_"
        self._shown = {
            name: value for name, value in environment.items() if name.startswith(prefix) and not _SECRET.search(name)
        }

    async def serve(self, request: Request, rest: str) -> Answer:
        method = request.head.method
        if rest == "metadata" and method == "GET":
            return json_reply({"env": self._shown})
        part, _, path = rest.partition("/")
        if part != "files":
            raise Refused(Code.NOT_FOUND, f"nothing is served at {request.head.path!r}")
        match method:
            case "GET" | "HEAD":
                return self._get(request, path)
            case "PUT":
                return await self._put(request, path)
            case "DELETE":
                await write.remove(self._root, path, recursive=_flag(request, "recursive"), follow=True)
                return Reply(204)
        raise Refused(Code.METHOD, f"{method} is not possible here")

    def _get(self, request: Request, path: str) -> Answer:
        if read.stat_of(self._root, path)["type"] == "directory":
            return json_reply({"path": f"/{path}", "entries": read.entries(self._root, path, self._entry(path))})
        return read.download(self._root, path, request.head.headers.get("range", ""))

    def _entry(self, directory: str) -> Any:
        def describe(place: Place, name: str) -> dict[str, Any] | None:
            """Describes the target of a symlink; a dangling one, or one that leads out of the root, is left out."""
            found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                try:
                    with self._root.opened(f"{directory}/{name}", os.O_PATH) as fd:
                        found = os.fstat(fd)
                except Refused:
                    return None
            kind = read.type_of(found.st_mode)
            if kind not in ("file", "directory"):
                return None
            return {
                "name": name,
                "size": found.st_size,
                "type": kind,
                "modified_at": datetime.fromtimestamp(int(found.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "mode": f"{stat.S_IMODE(found.st_mode) & 0o777:04o}",
            }

        return describe

    async def _put(self, request: Request, path: str) -> Answer:
        text = request.head.query.get("mode", "")
        if text and not _MODE.fullmatch(text):
            raise Refused(Code.INVALID, f"mode is {text!r}; use four octal digits such as 0644")
        mode = int(text, 8) if text else write.DEFAULT_MODE
        content = request.head.headers.get("content-type", "")
        if not content.lower().startswith("multipart/form-data"):
            await write.put(self._root, path, request.body.into, mode)
            return Reply(204)
        async with aclosing(request.body.pieces()) as pieces:
            form = Form(content, pieces)
            await form.part("file")
            await write.put(self._root, path, write.poured(form.content()), mode)
            await form.rest()
        return Reply(204)


def _flag(request: Request, name: str) -> bool:
    text = request.head.query.get(name, "")
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise Refused(Code.INVALID, f"{name} is {text!r}; use true or false")
