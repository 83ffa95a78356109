"""One repository of one registry, over the OCI distribution API: manifests, configs and blobs, logged in as needed.

What leaves this machine: credentials go only to the registry itself, or to its token service (challenge.py), and never along
with a redirect to another origin. Where a request may go is decided for every hop (allowed.py), and errors do not tell what answers
there: whoever chose the name of the image may also have chosen the hop. Nothing here decides whether content is right; whoever asked
compares digests.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
import msgspec
from yarl import URL

from sandpool.node.images.allowed import Origin, Reach, hop_reach, origin_of, registry_reach, within
from sandpool.node.images.challenge import Basic, Bearer, challenges, may_see_credentials, realm_trouble
from sandpool.node.images.errors import Broken, NotAllowed, pull_error
from sandpool.node.images.lines import Lines, OutOfReach
from sandpool.node.images.manifest import ACCEPT
from sandpool.node.images.options import LARGE, ImageOptions
from sandpool.node.images.pace import Place
from sandpool.node.images.port import Credential
from sandpool.node.images.reference import Name, loopback

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_TOKEN_BYTES = 1 << 20


class Registry:
    def __init__(self, lines: Lines, name: Name, credential: Credential | None, options: ImageOptions) -> None:
        self._lines = lines
        self._name = name
        self._credential = credential
        self._options = options
        self._authorization = ""
        self._login = asyncio.Lock()
        self._reach = registry_reach(name, options)
        self._own = origin_of(name, options)
        origin = URL.build(scheme=self._own.scheme, host=self._own.host, port=self._own.port)
        self._base = origin / "v2" / name.repository / ""
        self.used: Credential | None = None  # the login, from when it was shown to somebody

    @property
    def anonymous(self) -> bool:
        return self._credential is None

    async def manifest(self, wanted: str) -> tuple[bytes, str]:
        """The content as sent and the type that the registry calls it. `wanted` is a tag or a digest."""
        return await self._small(f"manifests/{wanted}", ACCEPT, f"manifest {wanted}")

    async def config(self, digest: str) -> bytes:
        return (await self._small(f"blobs/{digest}", "*/*", f"config {digest}"))[0]

    async def has(self, digest: str, size: int) -> bool:
        """Whether the registry lets this login have a blob: its first byte, and the size of all of it. HEAD would not do: where
        blobs are stored elsewhere, it is often answered by a redirect to what can only be read."""
        headers = {"Accept": "*/*", "Range": "bytes=0-0"}
        try:
            with self._telling():
                response = await self._ask(self._base.join(URL(f"blobs/{digest}", encoded=True)), headers)
        except (Broken, NotAllowed):
            return False
        response.close()  # whoever ignores the range sends all of it
        whole = response.headers.get("Content-Range", "") if response.status == 206 else ""
        return whole == f"bytes 0-0/{size}" or (response.status == 200 and response.content_length == size)

    async def _small(self, path: str, accept: str, what: str) -> tuple[bytes, str]:
        most = self._options.limits.manifest
        async with self._get(path, {"Accept": accept}, what) as response:
            with self._telling():
                async with asyncio.timeout(self._options.patience):
                    content = await self._read(response, most)
            if content is None:
                raise pull_error(str(self._name), f"{what} has more than {most} bytes")
            return content, response.headers.get("Content-Type", "").partition(";")[0].strip()

    @asynccontextmanager
    async def blob(self, digest: str, start: int = 0) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """From which byte it goes on (a registry may ignore `start`), and the bytes."""
        headers = {"Accept": "*/*"} | ({"Range": f"bytes={start}-"} if start else {})
        async with self._get(f"blobs/{digest}", headers, f"layer {digest}") as response:
            at = 0
            if response.status == 206:
                if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    raise Broken("the registry sent another part of a layer than it was asked for")
                at = start
            yield at, self._pieces(response)

    async def _pieces(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        while True:
            with self._telling():
                piece = await response.content.readany()
            if not piece:
                return
            self._lines.taken(len(piece))
            yield piece

    async def _read(self, response: aiohttp.ClientResponse, most: int) -> bytes | None:
        """The whole body; None if it is longer."""
        content = bytearray()
        place: Place | None = None
        async with AsyncExitStack() as stack:
            async for piece in self._pieces(response):
                if len(content) <= LARGE < len(content) + len(piece):
                    place = await stack.enter_async_context(self._lines.large())
                if place is not None:
                    place.got(len(piece))
                content += piece
                if len(content) > most:
                    return None
        return bytes(content)

    @asynccontextmanager
    async def _get(self, path: str, headers: dict[str, str], what: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response that is success. What goes wrong while it is used is the user's, and is not caught here."""
        url = self._base.join(URL(path, encoded=True))
        with self._telling():
            response = await self._ask(url, headers)
        async with response:
            await self._check(response, what)
            yield response

    async def _ask(self, url: URL, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Logs in when it is told to, once."""
        async with asyncio.timeout(self._options.patience):
            return await self._ask_patiently(url, headers)

    async def _ask_patiently(self, url: URL, headers: dict[str, str]) -> aiohttp.ClientResponse:
        used = self._authorization
        response = await self._follow(url, headers, used)
        if response.status != 401 or _origin(response.url) != self._own:
            return response
        asked = challenges(response.headers.getall("WWW-Authenticate", []))
        response.release()
        async with self._login:
            if self._authorization == used:  # else another request has just done it
                self._authorization = await self._log_in(asked)
        return await self._follow(url, headers, self._authorization)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """What the network does, in our words."""
        try:
            yield
        except aiohttp.ClientSSLError as error:
            raise pull_error(str(self._name), f"{self._name.registry} is not trusted: {_words(error)}") from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            raise Broken(f"{self._name.registry} cannot be reached: {self._unreached(error)}") from error

    def _unreached(self, error: BaseException) -> str:
        """The same words for a name that does not exist and for one that leads inside: the difference is none of a tenant's business."""
        cause = getattr(error, "os_error", error)
        if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(cause, OutOfReach) or _mixed(cause):
            return (
                "it has no public address"
                if self._reach is Reach.PUBLIC
                else "its name is not known, or leads to this machine, for which the operator lists HOST:PORT"
            )
        return _words(error)

    async def _follow(self, url: URL, headers: dict[str, str], authorization: str) -> aiohttp.ClientResponse:
        """Redirects are followed here, because only here it is known whom the authorization is for, and where they may lead."""
        reach, sent = self._reach, headers | ({"Authorization": authorization} if authorization else {})
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._send(url, sent, reach)
            if response.status not in _REDIRECTS:
                return response
            response.release()
            before, location = url, response.headers.get("Location", "")
            try:
                url = url.join(URL(location, encoded=True))
                reach = self._hop(before, url) if location else Reach.NOWHERE
            except ValueError:
                reach = Reach.NOWHERE
            if reach is Reach.NOWHERE:
                raise pull_error(
                    str(self._name), f"{self._name.registry} redirects to where it must not: {location[:200]!r}"
                )
            if _origin(url) != self._own:
                sent = headers  # from here on: it does not come back for one who returns
        raise pull_error(str(self._name), f"{self._name.registry} redirects more than {_MOST_REDIRECTS} times")

    def _hop(self, here: URL, to: URL) -> Reach:
        if to.user is not None or to.password is not None:
            return Reach.NOWHERE  # it would be sent as a login
        return hop_reach(self._reach, self._name, _origin(here), _origin(to), self._options)

    async def _send(self, url: URL, headers: dict[str, str], reach: Reach) -> aiohttp.ClientResponse:
        if reach is Reach.NOWHERE or not within(url.host or "", reach):
            raise OutOfReach(errno.EACCES, os.strerror(errno.EACCES))
        proxy = self._proxy(url)
        http = self._lines.to(reach, proxied=proxy is not None)
        self._lines.meter.expects()
        response = await http.get(url, headers=headers, allow_redirects=False, proxy=proxy)
        self._lines.meter.expects()
        return response

    def _proxy(self, url: URL) -> str | None:
        host, proxies = url.host or "", dict(self._options.proxies)
        if not proxies or loopback(host) or proxy_bypass_environment(f"{host}:{url.port}", proxies):
            return None
        return proxies.get(url.scheme)

    async def _log_in(self, asked: Sequence[Basic | Bearer]) -> str:
        """What to send as Authorization from now on."""
        for challenge in asked:
            if isinstance(challenge, Bearer):
                return f"Bearer {await self._token(challenge)}"
        if Basic() in asked and self._credential is not None:
            self.used = self._credential
            return _basic(self._credential)
        why = "it asks for a login in no way that is understood" if not asked else "it asks for a login"
        raise NotAllowed(why)

    async def _token(self, challenge: Bearer) -> str:
        trouble = realm_trouble(challenge.realm)
        reach = Reach.NOWHERE if trouble else self._hop(self._base, URL(challenge.realm))
        if reach is Reach.NOWHERE:
            trouble = trouble or "the operator does not allow it, or it is not https; `--registry` lists more hosts"
            raise pull_error(str(self._name), f"the token service {challenge.realm[:200]!r} is refused: {trouble}")
        realm = URL(challenge.realm)
        query = {"scope": challenge.scope or f"repository:{self._name.repository}:pull"}
        query |= {"service": challenge.service} if challenge.service else {}
        headers = {}
        if self._credential is not None:
            if not may_see_credentials(realm.host or "", self._name.registry, self._options.token_hosts):
                raise NotAllowed(
                    f"its token service {realm.host} is of another domain, so the credentials were not sent there; "
                    "the operator may list it as a token host"
                )
            headers["Authorization"] = _basic(self._credential)
            self.used = self._credential
        response = await self._send(realm.update_query(query), headers, reach)
        async with response:
            if response.status in (400, 401, 403):
                raise NotAllowed("its token service does not accept the login")
            if response.status != 200:
                raise Broken("its token service did not give a token")
            return _token_of(await self._read(response, _TOKEN_BYTES))

    async def _check(self, response: aiohttp.ClientResponse, what: str) -> None:
        if response.status in (200, 206):
            return
        registry = self._name.registry
        if _origin(response.url) != self._own:
            raise Broken(f"{registry} redirects to {response.url.host}, which does not give {what}")
        if response.status in (401, 403):
            raise NotAllowed(f"it answered {response.status}")
        if response.status == 404:
            raise pull_error(str(self._name), f"{registry} has no {what}; is the name right?")
        if response.status == 429:
            raise pull_error(str(self._name), f"{registry} allows no more pulls for now; it is tried again later")
        if response.status >= 500:
            raise Broken(f"{registry} answered {response.status}")
        raise pull_error(str(self._name), f"{registry} answered {response.status} to the request for {what}")


class _Granted(msgspec.Struct):
    """What a token service answers, as far as it is known: of a megabyte that somebody wrote to hurt, everything would be fifty."""

    token: str | None = None
    access_token: str | None = None


def _token_of(content: bytes | None) -> str:
    try:
        granted = msgspec.json.decode(content or b"", type=_Granted)
        token = granted.token or granted.access_token
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        token = None
    if not token or not token.isascii() or not token.isprintable():
        raise NotAllowed("its token service sent no token")
    return token


def _basic(credential: Credential) -> str:
    return "Basic " + base64.b64encode(f"{credential.username}:{credential.password}".encode()).decode()


def _origin(url: URL) -> Origin:
    return Origin(url.scheme, (url.host or "").lower(), url.port or 0)


def _mixed(error: BaseException) -> bool:
    """Several addresses failed, each in its way; one of them may have been out of reach."""
    return isinstance(error, OSError) and "Multiple exceptions" in str(error)


def _words(error: BaseException) -> str:
    """What happened, without an address in it and without a byte of what answered."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientSSLError):
        return str(getattr(error, "certificate_error", None) or getattr(error, "os_error", error))[:300]
    if isinstance(error, aiohttp.ClientResponseError):
        return "what answers does not speak HTTP"
    cause = getattr(error, "os_error", error)
    return os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "the connection broke off"
