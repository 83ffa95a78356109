"""The connection to a cluster that sandboxes share: to the API server, to the router, and the credentials for both.

A sandbox uses the connection that it is given, one of its own, or the one that all others share. The shared one lasts as long as
the program (or, asynchronously, its event loop), so a program that claims many sandboxes connects once. If the configuration
changes, a new shared connection is made; sandboxes that use the old one keep it, and the last of them closes it.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.credentials import Credential
from sandpool.kube.tls import tls_context
from sandpool.sdk._async.claim_watch import ClaimWatch
from sandpool.sdk._async.cluster import Cluster
from sandpool.sdk._async.http import Headers, Http
from sandpool.sdk._async.sync_primitives import Shared
from sandpool.sdk._async.transport import aside
from sandpool.sdk._async.tunnel import Tunnel, open_tunnel
from sandpool.sdk.api_paths import claims
from sandpool.sdk.claims import CLIENT
from sandpool.sdk.config import Config, Resolved, resolve_here
from sandpool.sdk.credentials import Credentials
from sandpool.sdk.deadline import Deadline
from sandpool.sdk.errors import NotConfigured
from sandpool.sdk.origin import Origin, read_origin
from sandpool.wire.router_service import PORT


class AsyncConnection:
    """Connections to one cluster that several sandboxes can share, which makes many claims cheaper.

    It connects on first use. Close it when no sandbox uses it any more, or use it in `async with`."""

    def __init__(self, config: Config | None = None, *, resolved: Resolved | None = None) -> None:
        self.resolved = resolved or resolve_here(config)
        self._credentials = Credentials(self.resolved.user, os.environ)
        self.cluster = Cluster(self.resolved, self._credentials)
        self.mark = os.urandom(8).hex()  # of the claims that are made here
        self._claim_watches: dict[str, ClaimWatch] = {}
        self._router: Http | None = None
        self._lock = threading.Lock()  # never held while waiting
        self._used: Credential | None = None

    @property
    def namespace(self) -> str:
        """The default namespace of sandboxes."""
        return self.resolved.namespace

    def claim_watch(self, namespace: str) -> ClaimWatch:
        """The watch on the claims that this connection creates."""
        with self._lock:
            if namespace not in self._claim_watches:
                query = {"labelSelector": f"{CLIENT}={self.mark}"}
                self._claim_watches[namespace] = ClaimWatch(self.cluster.watching(claims(namespace), query))
            return self._claim_watches[namespace]

    async def router(self) -> Http:
        """HTTP to the router: at its address or, if none is known, through the API server. NotConfigured if neither works."""
        with self._lock:
            if self._router is None:
                self._router = self._open_router()
            return self._router

    async def bearer(self) -> Headers:
        """The token for the router, which gets nothing else of the credential."""
        credential = self._credentials.ready()
        if credential is None:
            credential = await aside(self._credentials.current)
        self._used = credential
        return tuple(
            (name, value)
            for name, value in credential.headers
            if name == "Authorization" and value.startswith("Bearer ")
        )

    async def renew(self, used: Headers) -> bool:
        """After a 401: whether there is another token now."""
        credential = self._used
        if credential is None or not await aside(lambda: self._credentials.renew(credential)):
            return False
        return await self.bearer() != used

    async def close(self) -> None:
        """Closes all connections. Sandboxes keep running."""
        for watch in self._claim_watches.values():
            watch.close()
        await self.cluster.close()
        if self._router is not None:
            await self._router.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open_router(self) -> Http:
        address = self.resolved.router
        if address:
            origin = read_origin(address, "the address of the router")
            if not origin.private and not self.resolved.router_plain:
                raise NotConfigured(
                    f"the router at {origin} would get the token unencrypted over a network; give it TLS and an https:// "
                    "address, or set SANDPOOL_ROUTER_PLAIN=1 (or Config(router_plain=True)) on a network where nobody else listens"
                )
            trust = ApiServer(server=address, ca=self.resolved.router_ca)
            return Http(origin, tls=tls_context(trust, None) if origin.secure else None)
        if not self.resolved.tunnel:
            raise NotConfigured(f"no way into the sandboxes of {self.resolved.source}: {self.resolved.no_router}")
        return Http(Origin("http", "localhost", PORT), dial=self._open_tunnel)

    async def _open_tunnel(self, deadline: Deadline) -> Tunnel:
        return await open_tunnel(self.cluster, deadline)


class ConnectionLease:
    """A connection, until `end`."""

    def __init__(
        self, connection: AsyncConnection, sharing: ConnectionSharing | None = None, *, own: bool = False
    ) -> None:
        self.connection = connection
        self._sharing = sharing
        self._own = own

    async def end(self) -> None:
        """Calling it again does nothing."""
        sharing, self._sharing = self._sharing, None
        own, self._own = self._own, False
        if sharing is not None:
            await sharing.release(self.connection)
        if own:
            await self.connection.close()


class ConnectionSharing:
    """Leases the shared connection and counts who uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while waiting
        self._current: AsyncConnection | None = None
        self._users: dict[AsyncConnection, int] = {}

    async def lease(self) -> ConnectionLease:
        resolved = resolve_here(None)
        old = None
        with self._lock:
            current = self._current
            if current is None or current.resolved != resolved:
                old, current = current, AsyncConnection(resolved=resolved)
                self._current = current
                if old is not None and self._users.get(old):
                    old = None  # those who use it close it
            self._users[current] = self._users.get(current, 0) + 1
        if old is not None:
            await old.close()
        return ConnectionLease(current, self)

    async def release(self, connection: AsyncConnection) -> None:
        with self._lock:
            self._users[connection] -= 1
            unused = not self._users[connection]
            if unused:
                del self._users[connection]
            closed = unused and connection is not self._current
        if closed:
            await connection.close()

    async def close(self) -> None:
        with self._lock:
            current, self._current = self._current, None
            left = {*self._users, *([current] if current is not None else [])}
        for connection in left:
            await connection.close()


SHARED = Shared(ConnectionSharing)


async def lease_connection(connection: AsyncConnection | None, config: Config | None) -> ConnectionLease:
    if connection is not None:
        return ConnectionLease(connection)
    if config is not None:
        return ConnectionLease(AsyncConnection(config), own=True)
    return await (await SHARED.get()).lease()
