"""A client for one repository of one registry, over the OCI distribution API: manifests, configs and blobs, with logins as needed.

Credentials go only to the registry itself or to its token service (challenge.py), and never along with a redirect to another origin.
registry_policy.py decides for every hop where a request may go, and errors do not reveal what answers there: whoever chose the name of the
image may also have chosen the hop. The client does not verify content; the caller compares digests.
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

from sandpool.node.images.challenge import Basic, Bearer, challenges, may_see_credentials, realm_trouble
from sandpool.node.images.http_client import OutOfReach, RegistryConnections
from sandpool.node.images.image import Credential, TransientError, Unauthorized, pull_error
from sandpool.node.images.manifest import ACCEPT
from sandpool.node.images.options import LARGE, ImageOptions
from sandpool.node.images.pull_slots import PullSlot
from sandpool.node.images.reference import ImageName, loopback
from sandpool.node.images.registry_policy import Origin, Reach, hop_reach, origin_of, registry_reach, within

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_TOKEN_BYTES = 1 << 20


class RegistryClient:
    """Talks to one repository with one login, or none."""

    def __init__(
        self, connections: RegistryConnections, name: ImageName, credential: Credential | None, options: ImageOptions
    ) -> None:
        self._connections = connections
        self._name = name
        self._credential = credential
        self._options = options
        self._authorization = ""
        self._login = asyncio.Lock()
        self._reach = registry_reach(name, options)
        self._own = origin_of(name, options)
        origin = URL.build(scheme=self._own.scheme, host=self._own.host, port=self._own.port)
        self._base = origin / "v2" / name.repository / ""
        self.used: Credential | None = None  # the login, once it was sent to somebody

    @property
    def anonymous(self) -> bool:
        return self._credential is None

    async def manifest(self, wanted: str) -> tuple[bytes, str]:
        """The content as sent and its media type. `wanted` is a tag or a digest."""
        return await self._small(f"manifests/{wanted}", ACCEPT, f"manifest {wanted}")

    async def config(self, digest: str) -> bytes:
        return (await self._small(f"blobs/{digest}", "*/*", f"config {digest}"))[0]

    async def has(self, digest: str, size: int) -> bool:
        """Whether the registry serves this blob to this login, with this size. Reads its first byte: HEAD would not do, because registries
        with external blob storage often redirect it to a URL that only allows GET."""
        headers = {"Accept": "*/*", "Range": "bytes=0-0"}
        try:
            with self._translated_errors():
                response = await self._ask(self._base.join(URL(f"blobs/{digest}", encoded=True)), headers)
        except (TransientError, Unauthorized):
            return False
        response.close()  # a server that ignores the range would send everything
        whole = response.headers.get("Content-Range", "") if response.status == 206 else ""
        return whole == f"bytes 0-0/{size}" or (response.status == 200 and response.content_length == size)

    async def _small(self, path: str, accept: str, what: str) -> tuple[bytes, str]:
        most = self._options.limits.manifest
        async with self._get(path, {"Accept": accept}, what) as response:
            with self._translated_errors():
                async with asyncio.timeout(self._options.patience):
                    content = await self._read(response, most)
            if content is None:
                raise pull_error(str(self._name), f"{what} has more than {most} bytes")
            return content, response.headers.get("Content-Type", "").partition(";")[0].strip()

    @asynccontextmanager
    async def blob(self, digest: str, start: int = 0) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """The offset at which the response starts (a registry may ignore `start`), and the bytes."""
        headers = {"Accept": "*/*"} | ({"Range": f"bytes={start}-"} if start else {})
        async with self._get(f"blobs/{digest}", headers, f"layer {digest}") as response:
            at = 0
            if response.status == 206:
                if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    raise TransientError("the registry sent another part of a layer than it was asked for")
                at = start
            yield at, self._pieces(response)

    async def _pieces(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        while True:
            with self._translated_errors():
                piece = await response.content.readany()
            if not piece:
                return
            self._connections.taken(len(piece))
            yield piece

    async def _read(self, response: aiohttp.ClientResponse, most: int) -> bytes | None:
        """The whole body; None if it is longer."""
        content = bytearray()
        slot: PullSlot | None = None
        async with AsyncExitStack() as stack:
            async for piece in self._pieces(response):
                if len(content) <= LARGE < len(content) + len(piece):
                    slot = await stack.enter_async_context(self._connections.large())
                if slot is not None:
                    slot.got(len(piece))
                content += piece
                if len(content) > most:
                    return None
        return bytes(content)

    @asynccontextmanager
    async def _get(self, path: str, headers: dict[str, str], what: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response. Errors while its body is read are the caller's to handle."""
        url = self._base.join(URL(path, encoded=True))
        with self._translated_errors():
            response = await self._ask(url, headers)
        async with response:
            await self._check(response, what)
            yield response

    async def _ask(self, url: URL, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Sends the request; logs in once if the registry asks for it."""
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
            if self._authorization == used:  # else another request has already logged in
                self._authorization = await self._log_in(asked)
        return await self._follow(url, headers, self._authorization)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turns errors of the network into errors for a pod's status."""
        try:
            yield
        except aiohttp.ClientSSLError as error:
            raise pull_error(str(self._name), f"{self._name.registry} is not trusted: {_describe(error)}") from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            raise TransientError(f"{self._name.registry} cannot be reached: {self._unreached(error)}") from error

    def _unreached(self, error: BaseException) -> str:
        """The same message for a name that does not exist and for one that resolves to an internal address: tenants must not learn the difference."""
        cause = getattr(error, "os_error", error)
        if (
            isinstance(error, aiohttp.ClientConnectorDNSError)
            or isinstance(cause, OutOfReach)
            or _several_failed(cause)
        ):
            return (
                "it has no public address"
                if self._reach is Reach.PUBLIC
                else "its name is not known, or leads to this machine, for which the operator lists HOST:PORT"
            )
        return _describe(error)

    async def _follow(self, url: URL, headers: dict[str, str], authorization: str) -> aiohttp.ClientResponse:
        """Follows redirects itself, because it has to decide at each hop whether it is allowed and whether the authorization is sent along."""
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
                    str(self._name), f"{self._name.registry} redirects to a forbidden location: {location[:200]!r}"
                )
            if _origin(url) != self._own:
                sent = headers  # from here on: also not sent again if a later redirect leads back
        raise pull_error(str(self._name), f"{self._name.registry} redirects more than {_MOST_REDIRECTS} times")

    def _hop(self, here: URL, to: URL) -> Reach:
        if to.user is not None or to.password is not None:
            return Reach.NOWHERE  # aiohttp would send it as a login
        return hop_reach(self._reach, self._name, _origin(here), _origin(to), self._options)

    async def _send(self, url: URL, headers: dict[str, str], reach: Reach) -> aiohttp.ClientResponse:
        if reach is Reach.NOWHERE or not within(url.host or "", reach):
            raise OutOfReach(errno.EACCES, os.strerror(errno.EACCES))
        proxy = self._proxy(url)
        http = self._connections.to(reach, proxied=proxy is not None)
        self._connections.meter.expects()
        response = await http.get(url, headers=headers, allow_redirects=False, proxy=proxy)
        self._connections.meter.expects()
        return response

    def _proxy(self, url: URL) -> str | None:
        host, proxies = url.host or "", dict(self._options.proxies)
        if not proxies or loopback(host) or proxy_bypass_environment(f"{host}:{url.port}", proxies):
            return None
        return proxies.get(url.scheme)

    async def _log_in(self, asked: Sequence[Basic | Bearer]) -> str:
        """Logs in. Returns the Authorization header for the following requests."""
        for challenge in asked:
            if isinstance(challenge, Bearer):
                return f"Bearer {await self._token(challenge)}"
        if Basic() in asked and self._credential is not None:
            self.used = self._credential
            return _basic(self._credential)
        why = "it asks for a login in no way that is understood" if not asked else "it asks for a login"
        raise Unauthorized(why)

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
                raise Unauthorized(
                    f"its token service {realm.host} is of another domain, so the credentials were not sent there; "
                    "the operator may list it as a token host"
                )
            headers["Authorization"] = _basic(self._credential)
            self.used = self._credential
        response = await self._send(realm.update_query(query), headers, reach)
        async with response:
            if response.status in (400, 401, 403):
                raise Unauthorized("its token service does not accept the login")
            if response.status != 200:
                raise TransientError("its token service did not give a token")
            return token_of(await self._read(response, _TOKEN_BYTES))

    async def _check(self, response: aiohttp.ClientResponse, what: str) -> None:
        if response.status in (200, 206):
            return
        registry = self._name.registry
        if _origin(response.url) != self._own:
            raise TransientError(f"{registry} redirects to {response.url.host}, which does not give {what}")
        if response.status in (401, 403):
            raise Unauthorized(f"it answered {response.status}")
        if response.status == 404:
            raise pull_error(str(self._name), f"{registry} has no {what}; is the name right?")
        if response.status == 429:
            raise pull_error(str(self._name), f"{registry} has rate-limited this pull; it will be retried later")
        if response.status >= 500:
            raise TransientError(f"{registry} answered {response.status}")
        raise pull_error(str(self._name), f"{registry} answered {response.status} to the request for {what}")


class _Granted(msgspec.Struct):
    """The fields of a token response that are used. Decoding all fields could turn a hostile megabyte into fifty."""

    token: str | None = None
    access_token: str | None = None


def token_of(content: bytes | None) -> str:
    try:
        granted = msgspec.json.decode(content or b"", type=_Granted)
        token = granted.token or granted.access_token
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        token = None
    if not token or not token.isascii() or not token.isprintable():
        raise Unauthorized("its token service sent no token")
    return token


def _basic(credential: Credential) -> str:
    return "Basic " + base64.b64encode(f"{credential.username}:{credential.password}".encode()).decode()


def _origin(url: URL) -> Origin:
    return Origin(url.scheme, (url.host or "").lower(), url.port or 0)


def _several_failed(error: BaseException) -> bool:
    """Whether connecting to several addresses failed; one of them may have been out of reach."""
    return isinstance(error, OSError) and "Multiple exceptions" in str(error)


def _describe(error: BaseException) -> str:
    """Describes an error without addresses and without any part of the response."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientSSLError):
        return str(getattr(error, "certificate_error", None) or getattr(error, "os_error", error))[:300]
    if isinstance(error, aiohttp.ClientResponseError):
        return "what answers does not speak HTTP"
    cause = getattr(error, "os_error", error)
    return os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "the connection broke off"
