"""Discovery as finished pages: encoded once, compressed once, chosen by path and Accept header."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.answer import Document, accepts_gzip
from sandpool.controlplane.apiserver.discovery.resources import (
    aggregated,
    api_group,
    core_versions,
    group_list,
    resource_list,
)
from sandpool.controlplane.apiserver.exchange import Headers
from sandpool.controlplane.apiserver.negotiate import Media, not_acceptable, wanted
from sandpool.controlplane.apiserver.routes import Routes

WORTH_GZIP: Final = 2048
AGGREGATED: Final = ("v2", "v2beta1")


class Page:
    """One document in a fixed form."""

    def __init__(self, content: Any, media: str = "application/json") -> None:
        self.body: bytes = content if isinstance(content, bytes) else msgspec.json.encode(content)
        self.etag = f'"{hashlib.sha256(self.body).hexdigest().upper()}"'.encode()
        self._media = media.encode()
        self._packed: bytes | None = None

    def answer(
        self, headers: dict[bytes, bytes], extra: Headers | None = None, cache: bytes = b"no-cache, private"
    ) -> Document:
        common = [(b"cache-control", cache), (b"etag", self.etag), (b"vary", b"Accept"), *(extra or ())]
        if headers.get(b"if-none-match") == self.etag:
            return Document(b"", 304, common)
        common.append((b"content-type", self._media))
        if len(self.body) < WORTH_GZIP or not accepts_gzip(headers.get(b"accept-encoding")):
            return Document(self.body, 200, common)
        if self._packed is None:
            packer = zlib.compressobj(6, zlib.DEFLATED, 31)
            self._packed = packer.compress(self.body) + packer.flush()
        return Document(self._packed, 200, [*common, (b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")])


class Discovery:
    """All pages below /api and /apis that are no resources."""

    def __init__(self, routes: Routes, address: str) -> None:
        self._plain: dict[str, Page] = {
            "/api": Page(core_versions(address)),
            "/apis": Page(group_list(routes)),
        }
        for group, version in routes.groups:
            root = f"/apis/{group}" if group else "/api"
            if group:
                self._plain[root] = Page(api_group(group, version))
            self._plain[f"{root}/{version}"] = Page(resource_list(routes, group, version))
        self._aggregated: dict[tuple[str, str], Page] = {}
        for version in AGGREGATED:
            name = f"apidiscovery.k8s.io/{version}"
            media = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            self._aggregated["/api", version] = Page(aggregated(routes, True, name), media)
            self._aggregated["/apis", version] = Page(aggregated(routes, False, name), media)

    def page(self, path: str, accept: bytes | None) -> Page | None:
        """The page at a path, in the form that is wanted most; None: there is none. Raises NotAcceptable."""
        path = path.rstrip("/")
        plain = self._plain.get(path)
        if plain is None or not accept:
            return plain
        for entry in wanted(accept):
            if not entry.json:
                continue
            found = self._aggregated.get((path, _aggregated_version(entry)))
            if found is not None:
                return found
            if "as" not in entry.parameters:
                return plain
        raise not_acceptable()


def _aggregated_version(entry: Media) -> str:
    about = entry.parameters
    if about.get("as") == "APIGroupDiscoveryList" and about.get("g") == "apidiscovery.k8s.io":
        return about.get("v", "")
    return ""
