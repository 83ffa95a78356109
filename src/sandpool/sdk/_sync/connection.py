# generated from sdk/_async/connection.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""What a program shares among its sandboxes: the way to the API server, the way to the router, and who it is."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.credentials import Credential
from sandpool.kube.tls import tls_context
from sandpool.sdk._sync.cluster import Cluster
from sandpool.sdk._sync.http import Headers, Http
from sandpool.sdk._sync.news import News
from sandpool.sdk._sync.transport import aside
from sandpool.sdk._sync.tunnel import Tunnel, dig
from sandpool.sdk.api_paths import claims
from sandpool.sdk.claims import CLIENT
from sandpool.sdk.config import Config, Resolved, resolve_here
from sandpool.sdk.credentials import Credentials
from sandpool.sdk.deadline import Deadline
from sandpool.sdk.errors import NotConfigured
from sandpool.sdk.origin import Origin, read_origin
from sandpool.wire.router_service import PORT


class Connection:
    """Open connections to one cluster. Sandboxes that are given the same one share them, which makes many claims cheaper.

    Nothing is sent before it is needed. Close it when no sandbox uses it any more, or use it in `with`."""

    def __init__(self, config: Config | None = None, *, resolved: Resolved | None = None) -> None:
        self.resolved = resolved or resolve_here(config)
        self._credentials = Credentials(self.resolved.user, os.environ)
        self.cluster = Cluster(self.resolved, self._credentials)
        self.mark = os.urandom(8).hex()  # of the claims that are made here
        self._news: dict[str, News] = {}
        self._router: Http | None = None
        self._lock = threading.Lock()  # never held while waiting
        self._used: Credential | None = None

    @property
    def namespace(self) -> str:
        """Where sandboxes are unless told otherwise."""
        return self.resolved.namespace

    def news(self, namespace: str) -> News:
        """What becomes of the claims that carry our mark."""
        with self._lock:
            if namespace not in self._news:
                query = {"labelSelector": f"{CLIENT}={self.mark}"}
                self._news[namespace] = News(self.cluster.watching(claims(namespace), query))
            return self._news[namespace]

    def router(self) -> Http:
        """The way into sandboxes: the router at its address or, if none is known, through the API server. NotConfigured if neither
        leads there."""
        with self._lock:
            if self._router is None:
                self._router = self._open_router()
            return self._router

    def bearer(self) -> Headers:
        """The token, for the router: nothing else of a credential goes there."""
        credential = self._credentials.ready()
        if credential is None:
            credential = aside(self._credentials.current)
        self._used = credential
        return tuple(
            (name, value)
            for name, value in credential.headers
            if name == "Authorization" and value.startswith("Bearer ")
        )

    def renew(self, used: Headers) -> bool:
        """After a refusal: whether there is another token now."""
        credential = self._used
        if credential is None or not aside(lambda: self._credentials.renew(credential)):
            return False
        return self.bearer() != used

    def close(self) -> None:
        """Closes all connections. Sandboxes are not touched."""
        for news in self._news.values():
            news.close()
        self.cluster.close()
        if self._router is not None:
            self._router.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_router(self) -> Http:
        address = self.resolved.router
        if address:
            origin = read_origin(address, "the address of the router")
            if not origin.private and not self.resolved.router_plain:
                raise NotConfigured(
                    f"the router at {origin} would be sent the token unencrypted over a network; give it TLS and an https:// "
                    "address, or set SANDPOOL_ROUTER_PLAIN=1 (or Config(router_plain=True)) where nobody else listens"
                )
            trust = ApiServer(server=address, ca=self.resolved.router_ca)
            return Http(origin, tls=tls_context(trust, None) if origin.secure else None)
        if not self.resolved.tunnel:
            raise NotConfigured(f"no way into the sandboxes of {self.resolved.source}: {self.resolved.no_router}")
        return Http(Origin("http", "localhost", PORT), dial=self._dig)

    def _dig(self, deadline: Deadline) -> Tunnel:
        return dig(self.cluster, deadline)
