"""One request on its way through the server: what was asked, by whom, and how to read the rest of it."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.local.apiserver.answer import Receive
from sandpool.local.apiserver.identity import User
from sandpool.local.apiserver.negotiate import Form, form_of, media_type
from sandpool.local.apiserver.request import Params, RequestInfo
from sandpool.local.apiserver.routes import Route
from sandpool.model.resource import Resource

Scope = dict[str, Any]


class Call(msgspec.Struct, frozen=True):
    info: RequestInfo
    user: User
    params: Params
    headers: dict[bytes, bytes]
    receive: Receive
    scope: Scope

    @property
    def route(self) -> Route:
        assert self.info.route is not None
        return self.info.route

    @property
    def resource(self) -> Resource[Any]:
        return self.route.resource

    @property
    def namespace(self) -> str:
        """Of the object asked for: none for kinds that have none, also where the path reads like one."""
        return self.info.namespace if self.route.resource.namespaced else ""

    @property
    def form(self) -> Form:
        return form_of(self.headers.get(b"accept"))

    @property
    def media(self) -> str:
        return media_type(self.headers.get(b"content-type"))
