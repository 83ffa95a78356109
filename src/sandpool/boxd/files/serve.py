"""Serves requests about files: read, list, write, move, remove, trees as tar, and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from sandpool.boxd.files import read, trees, write
from sandpool.boxd.files.root import Root
from sandpool.boxd.files.watch import Watch
from sandpool.boxd.http.connection import Request, until_hang_up
from sandpool.boxd.http.reply import Answer, Reply, Streamed, json_reply
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import CONTENT_TYPE, Kind, pack_value


class FileRequests:
    def __init__(self, root: Root, absolute: Callable[[str], str]) -> None:
        """`absolute` resolves a path relative to the home directory."""
        self._root = root
        self._absolute = absolute

    async def serve(self, request: Request, path: str) -> Answer:
        match request.head.method:
            case "GET" | "HEAD":
                return await self._get(request, path)
            case "PUT":
                return await self._put(request, path)
            case "POST":
                return self._post(request, path)
            case "DELETE":
                await write.remove(self._root, path, recursive=request.head.flag("recursive"))
                return Reply(204)
        raise Refused(Code.METHOD, f"{request.head.method} is not possible here")

    async def _get(self, request: Request, path: str) -> Answer:
        head = request.head
        if head.flag("stat"):
            return json_reply(read.stat_of(self._root, path, follow=not head.flag("nofollow")))
        if head.flag("list"):
            return json_reply({"path": path, "entries": await asyncio.to_thread(read.entries, self._root, path)})
        if head.flag("tar"):
            read.stat_of(self._root, path)  # a missing path is refused before the response starts
            return Streamed(trees.pack(self._root, path), 200, {"content-type": "application/x-tar"})
        if head.flag("watch"):
            watch = Watch(self._root, path, recursive=head.flag("recursive"))
            return Streamed(until_hang_up(_events(watch), request.gone), 200, {"content-type": CONTENT_TYPE})
        return read.download(self._root, path, head.headers.get("range", ""))

    async def _put(self, request: Request, path: str) -> Answer:
        if request.head.flag("tar"):
            async with aclosing(request.body.pieces()) as pieces:
                return json_reply({"files": await trees.unpack(self._root, path, pieces)})
        await write.put(self._root, path, request.body.into, write.mode_of(request.head.query.get("mode", "")))
        return Reply(204)

    def _post(self, request: Request, path: str) -> Answer:
        head = request.head
        if head.flag("mkdir"):
            mode = write.mode_of(head.query.get("mode", ""))
            write.make_directory(self._root, path, mode, parents=head.flag("parents"))
            return Reply(204)
        if "move" in head.query:
            target = head.query["move"]
            write.move(self._root, path, self._absolute(target) if head.flag("relative") else target)
            return Reply(204)
        raise Refused(Code.INVALID, "a POST needs ?mkdir or ?move=TARGET")


async def _events(watch: Watch) -> AsyncGenerator[bytes, None]:
    yield pack_value(Kind.EVENT, {"change": "watching", "path": ""})
    async with aclosing(watch.changes()) as changes:
        async for change in changes:
            yield pack_value(Kind.EVENT, change)
