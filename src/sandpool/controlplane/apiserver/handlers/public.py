"""Paths that are not resources: health, version, metrics, reconcile history, discovery, OpenAPI.

GET /sandpool/stories/NAMESPACE/CONTROLLER/NAME returns the reconcile history of one object. It is kept in memory: it survives the object, but
not the process. A user who may read a namespace may read the history of its objects. auth.py and the handler parse that path with the same
function, so they cannot disagree about the namespace.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.body import decode_object
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.discovery import Discovery
from sandpool.controlplane.apiserver.handlers.runtime import NotServed
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.openapi.document import V2, V3, LegacyOpenApi, OpenApi
from sandpool.controlplane.apiserver.request import history_path, truth
from sandpool.controlplane.apiserver.response import (
    JsonResponse,
    RawResponse,
    Response,
    json_response,
    page_not_found,
    text,
)
from sandpool.model.metadata import Key
from sandpool.telemetry.metrics import CONTENT_TYPE, Metrics
from sandpool.telemetry.reconcile_history import Entry
from sandpool.version import __version__

EMULATED: Final = ("1", "36")
Check = Callable[[], bool]
Action = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""An action of the server, called by a POST with a JSON object; for the admin only."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
HistorySource = Callable[[Hashable], tuple[Entry, ...]]
"""The history of (controller, key), oldest first: `ReconcileHistory.of`."""
CONTROLLERS = ("claim", "sandbox", "pool", "template", "kubelet")


def version_body() -> bytes:
    """The Kubernetes version that clients compare with, followed by a plus sign and our version."""
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


class Public:
    """Handler of all paths that are not resources."""

    def __init__(
        self,
        discovery: Discovery,
        openapi: OpenApi,
        metrics: Metrics,
        checks: dict[str, Check],
        actions: Mapping[str, Action],
        history: HistoryPages,
        limits: Limits,
    ) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._metrics = metrics
        self._checks = checks
        self._actions = actions
        self._stories = history
        self._limits = limits
        self._version = JsonResponse(version_body())
        self._legacy = LegacyOpenApi()

    async def serve(self, call: Call) -> Response:
        info = call.info
        path = info.path
        if info.verb != "get":
            action = self._actions.get(path) if info.verb == "create" else None
            return page_not_found() if action is None else await self._act(action, call)
        root = path.split("/", 2)[1] if path.startswith("/") else ""  # `GET *` is valid HTTP
        if root in {"api", "apis"}:
            page = self._discovery.page(path, call.headers.get(b"accept"))
            return page.answer(call.headers) if page is not None else page_not_found()
        if root == "openapi" and (path == V3 or path.startswith(V3 + "/")):
            return self._openapi.answer(path, call.params, call.headers)
        if path == V2:
            return self._legacy.page(call.headers.get(b"accept")).answer(call.headers)
        if root in {"healthz", "livez", "readyz"}:
            return self._health(root, path, call)
        if path.rstrip("/") == "/version":
            return self._version
        if path == "/metrics":
            return RawResponse(self._metrics.expose(), 200, [(b"content-type", CONTENT_TYPE.encode())])
        return self._stories.page(call)

    async def _act(self, action: Action, call: Call) -> Response:
        raw = await call.exchange.read(self._limits.body)
        return json_response(await action(decode_object(raw, call.media, "object", self._limits.depth)))

    def _health(self, root: str, path: str, call: Call) -> Response:
        """`livez` checks only that the process answers; the others run every check."""
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


class HistoryPages:
    """Serves reconcile histories as JSON."""

    def __init__(self, history: HistorySource | None) -> None:
        self._stories = history

    def page(self, call: Call) -> Response:
        asked = history_path(call.info.path)
        if asked is None or asked.controller not in CONTROLLERS:
            return page_not_found()
        if self._stories is None:
            raise NotServed("this server runs no controllers, so nothing is remembered of any object")
        entries = self._stories((asked.controller, Key(asked.namespace, asked.name)))
        return json_response({**asked._asdict(), "entries": [entry.shown() for entry in entries]})
