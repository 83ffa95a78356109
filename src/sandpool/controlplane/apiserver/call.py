"""One authenticated request, as handlers get it: its target, its user, and the exchange for its body and response."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.apiserver.auth import User
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.negotiate import Form, form_of, media_type
from sandpool.controlplane.apiserver.request import Params, RequestInfo
from sandpool.controlplane.apiserver.routes import Route
from sandpool.model.resource import Resource


class Call(msgspec.Struct, frozen=True):
    """One authenticated request; see the module."""

    info: RequestInfo
    user: User
    params: Params
    exchange: Exchange

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers by name; a repeated header has its last value."""
        return self.exchange.header

    @property
    def route(self) -> Route:
        route = self.info.route
        assert route is not None
        return route

    @property
    def resource(self) -> Resource[Any]:
        route = self.info.route
        assert route is not None
        return route.resource

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty for cluster-scoped kinds, even if the path seems to name one."""
        route = self.info.route
        assert route is not None
        return self.info.namespace if route.resource.namespaced else ""

    @property
    def form(self) -> Form:
        return form_of(self.exchange.header.get(b"accept"))

    @property
    def media(self) -> str:
        return media_type(self.exchange.header.get(b"content-type"))
