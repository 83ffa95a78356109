"""The credentials that a request carries, and how they are renewed.

A credential is a value; a source hands out the current one. Sources differ only in where it comes from: fixed, files
that rotate, a plugin. After a 401 the transport asks its source to renew the one it used; of many requests that were
refused together, one does the work.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from sandpool.base.secret import Secret
from sandpool.kube.config import Config, Exec, Pem, User, read_text
from sandpool.kube.errors import ConfigError

if TYPE_CHECKING:  # a clock brings asyncio, which the synchronous SDK does without
    from sandpool.base.clock import Clock
    from sandpool.kube.plugin import Issued

FILE_AGE = 60.0
"""Seconds after which files are read again: kubelets replace a token long before it expires."""

LEEWAY = timedelta(seconds=10)
"""A plugin's credential is renewed this long before it expires."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its key, in PEM."""

    chain: Secret
    key: Secret


@dataclass(frozen=True, slots=True)
class Credential:
    """What one request carries: headers, a client certificate, or both."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    certificate: Certificate | None = None


class Source(Protocol):
    """Hands out the current credential, and renews it."""

    async def current(self) -> Credential: ...

    async def renew(self, used: Credential) -> bool:
        """The server refused `used`. True: `current` is another one now, so it is worth trying again."""
        ...


def credentials_for(config: Config, clock: Clock, env: Mapping[str, str]) -> Source:
    """`env` is the environment that a credential plugin inherits."""
    user = config.user
    if user.exec is not None:
        return FromPlugin(user, user.exec, clock, env)
    if user.token_file or (user.certificate and user.certificate.file) or (user.key and user.key.file):
        return FromFiles(user, clock)
    return Fixed(read_credential(user))


def read_credential(user: User) -> Credential:
    """The present credential of a user; reads the files that it names."""
    headers = user.headers
    token = user.token
    if user.token_file:
        text = read_text(user.token_file, "the token", "correct tokenFile or create the file").strip()
        if not text:
            raise ConfigError(f"{user.token_file}: the token is empty; write a token into it")
        token = Secret(text)
    if token:
        headers = (*headers, bearer(token))
    elif user.username or user.password:
        word = user.password.reveal() if user.password else ""
        pair = base64.b64encode(f"{user.username}:{word}".encode()).decode()
        headers = (*headers, ("Authorization", f"Basic {pair}"))
    if user.certificate is None or user.key is None:
        return Credential(headers)
    chain = _pem(user.certificate, "the client certificate", "client-certificate")
    return Credential(headers, Certificate(chain, _pem(user.key, "the client key", "client-key")))


class Fixed:
    """A credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def renew(self, used: Credential) -> bool:
        return False


class FromFiles:
    """Credentials from files, read again once a minute and after a 401. If a file cannot be read later, the last value stays."""

    def __init__(self, user: User, clock: Clock) -> None:
        self._user = user
        self._clock = clock
        self._credential = read_credential(user)
        self._read_at = clock.monotonic()

    async def current(self) -> Credential:
        if self._clock.monotonic() - self._read_at >= FILE_AGE:
            self._read()
        return self._credential

    async def renew(self, used: Credential) -> bool:
        if self._credential == used:
            self._read()
        return self._credential != used

    def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            fresh = read_credential(self._user)
        except ConfigError:
            return  # rotation in progress; the server decides about the old one
        if fresh != self._credential:
            self._credential = fresh


class FromPlugin:
    """Credentials from a plugin: runs it at first use, when its credential expires, and after a 401."""

    def __init__(self, user: User, spec: Exec, clock: Clock, env: Mapping[str, str]) -> None:
        import asyncio  # here: the synchronous SDK imports this module and needs no event loop

        self._user = user
        self._spec = spec
        self._clock = clock
        self._env = env
        self._credential: Credential | None = None
        self._issued: Issued | None = None
        self._asking = asyncio.Lock()

    async def current(self) -> Credential:
        if self._credential is not None and not self._expired():
            return self._credential
        async with self._asking:
            if self._credential is None or self._expired():
                await self._ask()
            assert self._credential is not None
            return self._credential

    async def renew(self, used: Credential) -> bool:
        async with self._asking:
            # Compared by identity: if the plugin issues the same token again, the retry is still worth it.
            if self._credential is used:
                await self._ask()
            return self._credential is not used

    def _expired(self) -> bool:
        expires = self._issued.expires if self._issued else None
        return expires is not None and self._clock.now() >= expires - LEEWAY

    async def _ask(self) -> None:
        from sandpool.kube.plugin import run_plugin  # here: most users have none

        self._issued = issued = await run_plugin(self._spec, self._env)
        base = read_credential(self._user)
        headers = (*base.headers, bearer(issued.token)) if issued.token else base.headers
        certificate = base.certificate
        if issued.certificate and issued.key:
            certificate = Certificate(issued.certificate, issued.key)
        self._credential = Credential(headers, certificate)


def bearer(token: Secret) -> tuple[str, str]:
    value = token.reveal()
    if not value.isascii() or not value.isprintable():
        raise ConfigError("the token holds a character that a header cannot carry; write it as plain text on one line")
    return ("Authorization", f"Bearer {value}")


def _pem(pem: Pem, what: str, field: str) -> Secret:
    if pem.data is not None:
        return pem.data
    assert pem.file is not None
    return Secret(read_text(pem.file, what, f"correct {field} or create the file"))
