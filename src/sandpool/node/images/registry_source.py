"""An image in a registry as a source: tries each matching login, and resumes downloads that the network interrupts."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.node.images.credentials import matching
from sandpool.node.images.http_client import RegistryConnections
from sandpool.node.images.image import Credential, TransientError, Unauthorized, pull_error
from sandpool.node.images.manifest import invalid_image
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.records import LayerAccess, provider
from sandpool.node.images.reference import ImageName
from sandpool.node.images.registry import RegistryClient
from sandpool.node.images.source import LayerSource, ResolvedImage, resolve

T = TypeVar("T")
InThread = Callable[[Callable[[], None]], Awaitable[None]]
_WAIT = 0.5  # seconds before the second attempt; doubled each time
_WRITE_AT = 1 << 20  # bytes per write in a thread


class RegistrySource:
    """An image in a registry, with all logins that match its name."""

    def __init__(
        self,
        connections: RegistryConnections,
        name: ImageName,
        credentials: Sequence[Credential],
        options: ImageOptions,
        clock: Clock,
        in_thread: InThread,
        *,
        everybody: bool = False,
    ) -> None:
        """`everybody`: the operator pulls for all pods, whatever login it takes. `in_thread` runs blocking work."""
        self._name = name
        self._everybody = everybody
        self._options = options
        self._clock = clock
        self._in_thread = in_thread
        logins: Sequence[Credential | None] = matching(credentials, name) or (None,)
        self._registries = [RegistryClient(connections, name, login, options) for login in logins]
        self._registry = self._registries[0]

    async def describe(self) -> ResolvedImage:
        refused = Unauthorized("")
        for registry in self._registries:
            try:
                wanted = await self._tried(partial(self._resolve, registry))
            except Unauthorized as error:
                refused = error
            else:
                self._registry = registry
                return wanted
        raise self._not_allowed(refused)

    async def _resolve(self, registry: RegistryClient) -> ResolvedImage:
        return await resolve(registry, self._name.wanted, None, self._options, f"image {self._name}")

    async def fetch(self, layer: LayerSource, target: Path, report: Callable[[int], Awaitable[object]]) -> None:
        with target.open("wb") as file:
            download = _Download(
                self._registry,
                layer,
                file,
                report,
                str(self._name),
                self._steady,
                self._clock.monotonic,
                self._in_thread,
            )
            try:
                await self._tried(download.go_on)
            except Unauthorized as error:
                raise self._not_allowed(error) from error

    def _steady(self, began: float, size: int) -> bool:
        """Whether the download is fast enough: a server that sends a byte a minute would keep its slot forever."""
        elapsed = self._clock.monotonic() - began
        return elapsed <= self._options.patience or size >= elapsed * self._options.slowest

    @property
    def public(self) -> bool:
        """Whether everybody may use the image: no login was sent."""
        return self._everybody or self._registry.used is None

    @property
    def used(self) -> Credential | None:
        """The login that the registry accepted."""
        return self._registry.used

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        return provider(self._name, layer.digest) in access.providers and await self._registry.has(
            layer.digest, layer.size
        )

    def grants(self, layer: LayerSource) -> LayerAccess:
        if self.public:
            return LayerAccess(public=True)
        return LayerAccess(providers=(provider(self._name, layer.digest),))

    async def _tried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        wait = _WAIT
        for number in range(1, self._options.attempts + 1):
            try:
                return await attempt()
            except TransientError as error:
                if number == self._options.attempts:
                    raise pull_error(str(self._name), f"{error} (tried {number} times)") from error
            await self._clock.sleep(wait)
            wait *= 2
        raise AssertionError("unreachable")

    def _not_allowed(self, error: Unauthorized) -> NodeError:
        registry = self._name.registry
        hint = (
            f"no login for {registry} was given; name one in imagePullSecrets"
            if len(self._registries) == 1 and self._registries[0].anonymous
            else "the login in imagePullSecrets does not suffice"
        )
        return pull_error(
            str(self._name), f"{registry} does not give it to us: {error}. Either it does not exist, or {hint}"
        )


class _Download:
    """Downloads one layer into a file and hashes it on the way, so that an interrupted download can be resumed."""

    def __init__(
        self,
        registry: RegistryClient,
        layer: LayerSource,
        file: IO[bytes],
        report: Callable[[int], Awaitable[object]],
        name: str,
        steady: Callable[[float, int], bool],
        now: Callable[[], float],
        in_thread: InThread,
    ) -> None:
        self._registry = registry
        self._layer = layer
        self._file = file
        self._report = report
        self._what = f"layer {layer.digest} of image {name}"
        self._sum = hashlib.sha256()
        self._size = 0
        self._steady = steady
        self._now = now
        self._in_thread = in_thread

    async def go_on(self) -> None:
        began, had = self._now(), self._size
        async with self._registry.blob(self._layer.digest, self._size) as (start, pieces):
            if start != self._size:
                await self._start_again()
                had = 0
            waiting = bytearray()
            async for piece in pieces:
                if self._size + len(waiting) + len(piece) > self._layer.size:
                    raise invalid_image(self._what, f"it has more bytes than its descriptor says ({self._layer.size})")
                waiting += piece
                if not self._steady(began, self._size - had + len(waiting)):
                    raise TransientError(f"{self._what} is received too slowly")
                if len(waiting) >= _WRITE_AT:
                    await self._write(waiting)
                    waiting = bytearray()
            await self._write(waiting)
        if self._size < self._layer.size:
            raise TransientError(f"{self._what} ended after {self._size} of {self._layer.size} bytes")
        if f"sha256:{self._sum.hexdigest()}" != self._layer.digest:
            raise invalid_image(self._what, f"its digest is sha256:{self._sum.hexdigest()}")

    async def _start_again(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._sum, self._size = hashlib.sha256(), 0

    async def _write(self, piece: bytearray) -> None:
        await self._in_thread(partial(self._write_now, piece))
        await self._report(self._size)

    def _write_now(self, piece: bytearray) -> None:
        self._file.write(piece)
        self._sum.update(piece)
        self._size += len(piece)
