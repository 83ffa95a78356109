# generated from sdk/_async/cluster.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""A small client of an API server: objects are plain JSON, paths name them (sdk/api_paths.py makes them).

It has the verbs of kube/api.py but does not implement that port, for three reasons. The port decodes into the types of model/, which
drop unknown fields, and whose import (with msgspec) every program that uses the SDK would pay for. It is asynchronous only, and this file is
also the source of the synchronous client. And the SDK and the commands need what the port does not have: tables, any kind, logs.
As there, the verbs only build requests: `request` sends one and reads the whole answer, `open_stream` leaves it to the caller to read;
both handle credentials, `request` also retries.

Raises ApiError for what the server says, Unreachable for no answer. A 429 is sent again after the time that the server asks for; a 401 once,
with a renewed credential. Nothing else is sent twice, except what Http knows was not processed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.credentials import Certificate, Credential
from sandpool.kube.errors import ConfigError, TooManyRequests, Unreadable, from_status
from sandpool.kube.retry import RetryPolicy, pause
from sandpool.kube.tls import tls_context
from sandpool.sdk._sync.http import Answer, Headers, Http, Response
from sandpool.sdk._sync.resuming_watch import OpenWatch, ResumingWatch
from sandpool.sdk._sync.transport import aside, sleep
from sandpool.sdk._sync.websocket import WebSocket
from sandpool.sdk.api_paths import with_query
from sandpool.sdk.config import Resolved
from sandpool.sdk.credentials import Credentials
from sandpool.sdk.deadline import Deadline, after
from sandpool.sdk.errors import TimedOut, TooLarge
from sandpool.sdk.origin import read_origin
from sandpool.sdk.watch_lines import WatchEvent

JSON = "application/json"
TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
TIMEOUT = 30.0  # seconds for one request
SHORTEST = 0.001  # seconds that another try gets at least
PAGE = 500
MOST_ITEMS = 100_000  # of one list
MOST_EMPTY = 1000  # pages of one list, one after the other, that have no items
AT_ONCE = 16  # requests in flight: each needs a connection, and those are expensive

Object = dict[str, Any]


class Cluster:
    def __init__(self, resolved: Resolved, credentials: Credentials) -> None:
        self.resolved = resolved
        self._credentials = credentials
        self.http: Http | None = None
        self._certificate: Certificate | None = None
        self._lock = threading.Lock()  # never held while waiting
        self._policy = RetryPolicy()

    def get(self, path: str, *, as_table: bool = False, timeout: float = TIMEOUT) -> Object:
        return self._object("GET", path, accept=TABLE if as_table else JSON, timeout=timeout)

    def create(
        self, path: str, body: Mapping[str, Any], timeout: float = TIMEOUT, policy: RetryPolicy | None = None
    ) -> Object:
        return self._object("POST", path, body, timeout=timeout, policy=policy)

    def patch(self, path: str, body: Mapping[str, Any] | Sequence[Any]) -> Object:
        """An object is a merge patch, a list a JSON patch."""
        return self._object("PATCH", path, body, MERGE if isinstance(body, Mapping) else JSON_PATCH)

    def delete(self, path: str, *, uid: str = "", propagation: str = "", grace: int | None = None) -> Object:
        """With `uid`, only that object: Conflict if the name belongs to another one."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if propagation:
            body["propagationPolicy"] = propagation
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        return self._object("DELETE", path, body)

    def pages(
        self, path: str, *, labels: str = "", fields: str = "", limit: int = PAGE, as_table: bool = False
    ) -> Iterator[Object]:
        """A list, page after page, as the server gives them."""
        after = ""
        while True:
            query = {"labelSelector": labels, "fieldSelector": fields, "limit": limit or "", "continue": after}
            page = self.get(with_query(path, query), as_table=as_table)
            yield page
            after = str((page.get("metadata") or {}).get("continue") or "")
            if not after:
                return

    def list(self, path: str, *, labels: str = "", fields: str = "", as_table: bool = False) -> Object:
        """The whole list. With `as_table` it is a Table if the server supports that: look at `kind`. TooLarge beyond 100,000 entries."""
        whole: Object = {}
        empty = 0
        for page in self.pages(path, labels=labels, fields=fields, as_table=as_table):
            empty = 0 if page.get("items") or page.get("rows") else empty + 1
            if empty > MOST_EMPTY:
                raise Unreadable(f"{path}: the list has {empty} empty pages in a row; is this an API server?")
            if not whole:
                whole = page
                continue
            for key in ("items", "rows"):
                if key in page:
                    whole.setdefault(key, []).extend(page[key] or [])
            if max(len(whole.get("items") or ()), len(whole.get("rows") or ())) > MOST_ITEMS:
                raise TooLarge(f"{path}: more than {MOST_ITEMS} objects; narrow the list with a selector", MOST_ITEMS)
        whole.get("metadata", {}).pop("continue", None)
        return whole

    @contextmanager
    def watch(
        self,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
        as_table: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Iterator[WatchEvent]]:
        """Changes after the revision `since` (without one: first the present state), until `timeout` seconds have passed.

        A connection that ends is resumed where it ended. Gone means: list again, and watch from there."""
        events = self._events(path, {"labelSelector": labels, "fieldSelector": fields}, since, as_table, timeout)
        try:
            yield events
        finally:
            events.close()  # type: ignore[attr-defined]

    def watching(self, path: str, query: Mapping[str, str], *, as_table: bool = False) -> OpenWatch:
        """How a ResumingWatch opens its connection, each time."""
        headers = (("Accept", TABLE if as_table else JSON),)
        return lambda more: self.open_stream("GET", with_query(path, {**query, **more}), headers)

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Headers = (), body: bytes = b"", timeout: float | None = TIMEOUT
    ) -> Iterator[Answer]:
        """A request to any path whose answer is read as it comes: logs, watches. Raises what the server refuses."""
        answer = self.open_stream(method, path, headers, body, timeout)
        try:
            yield answer
        finally:
            answer.leave()

    def open_stream(
        self, method: str, path: str, headers: Headers = (), body: bytes = b"", timeout: float | None = TIMEOUT
    ) -> Answer:
        """Like `stream`; the caller must `leave` the answer."""
        http, used = self._ready()
        answer = http.open_stream(method, path, (*used.headers, *headers), body, timeout)
        try:
            if answer.status == 401 and aside(lambda: self._credentials.renew(used)):
                answer.leave()
                http, used = self._ready()
                answer = http.open_stream(method, path, (*used.headers, *headers), body, timeout)
            if not answer.ok:
                raise _refused(Response(answer.status, answer.headers, answer.beginning(timeout=timeout)))
        except BaseException:
            answer.leave()
            raise
        return answer

    def open_websocket(self, path: str, protocols: tuple[str, ...], deadline: Deadline) -> WebSocket:
        """Opens a stream of a pod, such as port-forward. The caller ends it."""
        http, used = self._ready()
        return http.open_websocket(path, used.headers, deadline, protocols)

    def request(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes = b"",
        timeout: float = TIMEOUT,
        policy: RetryPolicy | None = None,
    ) -> Response:
        """A request to any path. Raises what the server refuses. All tries together take at most `timeout` seconds."""
        started, tries, left = time.monotonic(), 0, timeout
        while True:
            tries += 1
            try:
                return self._once(method, path, headers, body, left)
            except TooManyRequests as busy:
                elapsed = time.monotonic() - started
                wait = pause(policy or self._policy, busy, tries, elapsed, os.urandom(1)[0] / 256)
                if wait is None or elapsed + wait >= timeout:
                    raise
            sleep(wait)
            left = max(SHORTEST, timeout - (time.monotonic() - started))

    def close(self) -> None:
        if self.http is not None:
            self.http.close()

    def _object(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = JSON,
        accept: str = JSON,
        timeout: float = TIMEOUT,
        policy: RetryPolicy | None = None,
    ) -> Object:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = [("Accept", accept), *([("Content-Type", kind)] if data else [])]
        answer = (self.request(method, path, headers, data, timeout, policy)).json()
        return answer if isinstance(answer, dict) else {}

    def _once(self, method: str, path: str, headers: Headers, body: bytes, timeout: float) -> Response:
        http, used = self._ready()
        response = http.request(method, path, (*used.headers, *headers), body, timeout)
        if response.status == 401 and aside(lambda: self._credentials.renew(used)):
            http, used = self._ready()
            response = http.request(method, path, (*used.headers, *headers), body, timeout)
        if not response.ok:
            raise _refused(response)
        return response

    def _ready(self) -> tuple[Http, Credential]:
        """Connections with the current client certificate, and the credential for headers."""
        credential = self._credentials.ready()
        if credential is None:
            credential = aside(self._credentials.current)
        origin = read_origin(self.resolved.cluster.server, "the address of the API server")
        if credential.headers and not origin.private:
            raise ConfigError(f"{origin} would get the credential unencrypted; use its https:// address")
        old = None
        with self._lock:
            if self.http is None or self._certificate != credential.certificate:
                old, self.http = self.http, _http(self.resolved.cluster, credential.certificate)
                self._certificate = credential.certificate
            http = self.http
        if old is not None:
            old.close()
        return http, credential

    def _events(
        self, path: str, query: Mapping[str, str], since: str, as_table: bool, timeout: float | None
    ) -> Iterator[WatchEvent]:
        watch = ResumingWatch(self.watching(path, query, as_table=as_table), since, timeout)
        deadline = after(timeout)
        try:
            while True:
                try:
                    events = watch.batch(deadline)
                except TimedOut:
                    return
                for event in events:
                    yield event
        finally:
            watch.close()


def _http(cluster: ApiServer, certificate: Certificate | None) -> Http:
    origin = read_origin(cluster.server, "the address of the API server")
    tls = tls_context(cluster, certificate) if origin.secure else None
    return Http(origin, tls=tls, server_name=cluster.server_name, at_once=AT_ONCE)


def _refused(response: Response) -> Exception:
    try:
        body = json.loads(response.body)
    except (ValueError, RecursionError):
        body = {}
    wait = response.header("retry-after") or ""
    seconds = int(wait) if wait.isdecimal() and len(wait) < 7 else None
    return from_status(response.status, body if isinstance(body, dict) else {}, seconds)
