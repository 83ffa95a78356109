"""Paths that are no resources: health, version, metrics, stories, discovery, OpenAPI."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.answer import Answer, Document, Reply, encoded, page_not_found, text
from sandpool.controlplane.apiserver.body import decode_object
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.discovery.pages import Discovery
from sandpool.controlplane.apiserver.handlers.stories import StoryPages
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.openapi import legacy
from sandpool.controlplane.apiserver.openapi.pages import ROOT, OpenApi
from sandpool.controlplane.apiserver.request import truth
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics
from sandpool.version import __version__

EMULATED: Final = ("1", "36")
Check = Callable[[], bool]
Action = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Something that the whole server can be told to do, by POST with a JSON object: only the admin may."""


def version_body() -> bytes:
    """A Kubernetes version that clients can compare with, and ours after the plus sign."""
    major, minor = EMULATED
    return msgspec.json.encode(
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{major}.{minor}.0+sandpool.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": f"python{platform.python_version()}",
            "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
        }
    )


_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class Public:
    def __init__(
        self,
        discovery: Discovery,
        openapi: OpenApi,
        metrics: Metrics,
        checks: dict[str, Check],
        actions: Mapping[str, Action],
        stories: StoryPages,
        limits: Limits,
    ) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._metrics = metrics
        self._checks = checks
        self._actions = actions
        self._stories = stories
        self._limits = limits
        self._version = Answer(version_body())
        self._legacy = legacy.LegacyOpenApi()

    async def serve(self, call: Call) -> Reply:
        info = call.info
        path = info.path
        if info.verb != "get":
            action = self._actions.get(path) if info.verb == "create" else None
            return page_not_found() if action is None else await self._act(action, call)
        root = path.split("/", 2)[1] if path.startswith("/") else ""  # `GET *` is HTTP, too
        if root in {"api", "apis"}:
            page = self._discovery.page(path, call.headers.get(b"accept"))
            return page.answer(call.headers) if page is not None else page_not_found()
        if root == "openapi" and (path == ROOT or path.startswith(ROOT + "/")):
            return self._openapi.answer(path, call.params, call.headers)
        if path == legacy.PATH:
            return self._legacy.page(call.headers.get(b"accept")).answer(call.headers)
        if root in {"healthz", "livez", "readyz"}:
            return self._health(root, path, call)
        if path.rstrip("/") == "/version":
            return self._version
        if path == "/metrics":
            return Document(self._metrics.expose(), 200, [(b"content-type", CONTENT_TYPE.encode())])
        return self._stories.page(call)

    async def _act(self, action: Action, call: Call) -> Reply:
        raw = await call.exchange.read(self._limits.body)
        return encoded(await action(decode_object(raw, call.media, "object", self._limits.depth)))

    def _health(self, root: str, path: str, call: Call) -> Reply:
        """`livez` asks only whether the process answers; the others ask every check."""
        checks = {} if root == "livez" else self._checks
        results = {"ping": True, **{name: check() for name, check in checks.items()}}
        single = path.removeprefix(f"/{root}").strip("/")
        if single:
            if single not in results:
                return page_not_found()
            results = {single: results[single]}
        good = all(results.values())
        if good and not truth(call.params, "verbose"):
            return text("ok")
        lines = [f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}" for name, passed in results.items()]
        lines.append(f"{root} check {'passed' if good else 'failed'}")
        return text("\n".join(lines) + "\n", 200 if good else 500)
