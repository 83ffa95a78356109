"""OpenAPI as finished pages: /openapi/v3 with a hash for each group, and the groups' documents, cacheable for ever by hash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cached_property
from typing import Final

from sandpool.controlplane.apiserver.answer import Document, Reply, page_not_found
from sandpool.controlplane.apiserver.discovery.pages import Page
from sandpool.controlplane.apiserver.negotiate import not_acceptable, wanted
from sandpool.controlplane.apiserver.openapi.document import group_document
from sandpool.controlplane.apiserver.request import Params
from sandpool.controlplane.apiserver.routes import Routes

ROOT: Final = "/openapi/v3"
A_YEAR: Final = timedelta(days=365)


class OpenApi:
    """Made on first use: most servers are never asked."""

    def __init__(self, routes: Routes, now: Callable[[], datetime]) -> None:
        self._routes = routes
        self._now = now

    @cached_property
    def _pages(self) -> dict[str, Page]:
        pages = {}
        for group, version in self._routes.groups:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            pages[name] = Page(group_document(self._routes, group, version))
        return pages

    @cached_property
    def _index(self) -> Page:
        paths = {name: {"serverRelativeURL": self._address(name, page)} for name, page in self._pages.items()}
        return Page({"paths": paths})

    def _address(self, name: str, page: Page) -> str:
        return f"{ROOT}/{name}?hash={_hash(page)}"

    def answer(self, path: str, params: Params, headers: dict[bytes, bytes]) -> Reply:
        accept = headers.get(b"accept")
        if accept and not any(entry.json for entry in wanted(accept)):
            raise not_acceptable()
        name = path.removeprefix(ROOT).strip("/")
        if not name:
            return self._index.answer(headers)
        page = self._pages.get(name)
        if page is None:
            return page_not_found()
        asked = params.get("hash")
        if asked is None:
            return page.answer(headers)
        if asked != _hash(page):
            return Document(b"", 301, [(b"location", self._address(name, page).encode()), (b"etag", page.etag)])
        expires = format_datetime(self._now() + A_YEAR, usegmt=True)
        return page.answer(headers, [(b"expires", expires.encode())], cache=b"public, immutable")


def _hash(page: Page) -> str:
    return page.etag.strip(b'"').decode()
