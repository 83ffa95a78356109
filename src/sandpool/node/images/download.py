"""An image in a registry: tried with each login that is meant for it, and downloaded in pieces that survive a broken network."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.node.images.access import provider
from sandpool.node.images.credentials import matching
from sandpool.node.images.errors import Broken, NotAllowed, pull_error
from sandpool.node.images.lines import Lines
from sandpool.node.images.manifest import refusal
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.port import Credential
from sandpool.node.images.records import LayerAccess
from sandpool.node.images.reference import Name
from sandpool.node.images.registry import Registry
from sandpool.node.images.source import LayerSource, Wanted, resolve

T = TypeVar("T")
_WAIT = 0.5  # seconds before the second attempt; doubled each time
_WRITE_AT = 1 << 20  # bytes that are worth a thread


class RegistrySource:
    def __init__(
        self,
        lines: Lines,
        name: Name,
        credentials: Sequence[Credential],
        options: ImageOptions,
        clock: Clock,
        *,
        everybody: bool = False,
    ) -> None:
        """everybody: whatever login it takes, the operator wants all pods to have it."""
        self._name = name
        self._everybody = everybody
        self._options = options
        self._clock = clock
        logins: Sequence[Credential | None] = matching(credentials, name) or (None,)
        self._registries = [Registry(lines, name, login, options) for login in logins]
        self._registry = self._registries[0]

    async def describe(self) -> Wanted:
        refused = NotAllowed("")
        for registry in self._registries:
            try:
                wanted = await self._tried(partial(self._resolve, registry))
            except NotAllowed as error:
                refused = error
            else:
                self._registry = registry
                return wanted
        raise self._not_allowed(refused)

    async def _resolve(self, registry: Registry) -> Wanted:
        return await resolve(registry, self._name.wanted, None, self._options, f"image {self._name}")

    async def fetch(self, layer: LayerSource, target: Path, told: Callable[[int], Awaitable[object]]) -> None:
        with target.open("wb") as file:
            download = _Download(
                self._registry, layer, file, told, str(self._name), self._steady, self._clock.monotonic
            )
            try:
                await self._tried(download.go_on)
            except NotAllowed as error:
                raise self._not_allowed(error) from error

    def _steady(self, began: float, size: int) -> bool:
        """Whether so many bytes since then are fast enough: who sends one a minute would keep its place for ever."""
        elapsed = self._clock.monotonic() - began
        return elapsed <= self._options.patience or size >= elapsed * self._options.slowest

    @property
    def public(self) -> bool:
        """Whether everybody may have what came: no login was shown to anybody."""
        return self._everybody or self._registry.used is None

    @property
    def used(self) -> Credential | None:
        """The login that it took."""
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
            except Broken as error:
                if number == self._options.attempts:
                    raise pull_error(str(self._name), f"{error} (tried {number} times)") from error
            await self._clock.sleep(wait)
            wait *= 2
        raise AssertionError("unreachable")

    def _not_allowed(self, error: NotAllowed) -> NodeError:
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
    """One layer into one file; the digest goes along, so that what was broken off can go on where it was."""

    def __init__(
        self,
        registry: Registry,
        layer: LayerSource,
        file: IO[bytes],
        told: Callable[[int], Awaitable[object]],
        name: str,
        steady: Callable[[float, int], bool],
        now: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._layer = layer
        self._file = file
        self._told = told
        self._what = f"layer {layer.digest} of image {name}"
        self._sum = hashlib.sha256()
        self._size = 0
        self._steady = steady
        self._now = now

    async def go_on(self) -> None:
        began, had = self._now(), self._size
        async with self._registry.blob(self._layer.digest, self._size) as (start, pieces):
            if start != self._size:
                await self._start_again()
                had = 0
            waiting = bytearray()
            async for piece in pieces:
                if self._size + len(waiting) + len(piece) > self._layer.size:
                    raise refusal(self._what, f"it has more than the {self._layer.size} bytes that were promised")
                waiting += piece
                if not self._steady(began, self._size - had + len(waiting)):
                    raise Broken(f"{self._what} comes too slowly")
                if len(waiting) >= _WRITE_AT:
                    await self._write(waiting)
                    waiting = bytearray()
            await self._write(waiting)
        if self._size < self._layer.size:
            raise Broken(f"{self._what} ended after {self._size} of {self._layer.size} bytes")
        if f"sha256:{self._sum.hexdigest()}" != self._layer.digest:
            raise refusal(self._what, f"its digest is sha256:{self._sum.hexdigest()}")

    async def _start_again(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._sum, self._size = hashlib.sha256(), 0

    async def _write(self, piece: bytearray) -> None:
        await asyncio.to_thread(self._write_now, piece)
        await self._told(self._size)

    def _write_now(self, piece: bytearray) -> None:
        self._file.write(piece)
        self._sum.update(piece)
        self._size += len(piece)
