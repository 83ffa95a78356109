"""Parses method, path and query of a request into a RequestInfo. Pure.

The fields are those of Kubernetes' RequestInfo: verb, group, version, namespace, resource, name, subresource. Paths that are not resources keep
only the verb and the path.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote_plus

import msgspec

from sandpool.controlplane.apiserver.routes import Review, Route, Routes

Params = dict[str, str]
"""Query parameters. A repeated parameter has its first value, as in Kubernetes."""

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


_NOTHING: Final[dict[str, Route]] = {}

HISTORY_ROOT: Final = "/sandpool/stories"


class RequestInfo(msgspec.Struct, frozen=True, gc=False):
    """The target of a request. A path that is not a resource has only `verb` and `path`."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    route: Route | None = None  # None with a plural: a kind that is not served
    review: Review | None = None

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class HistoryPath(NamedTuple):
    """The object whose reconcile history a path names."""

    namespace: str
    controller: str
    name: str


def history_path(path: str) -> HistoryPath | None:
    """Parses the path of a reconcile history: `/sandpool/stories/NAMESPACE/CONTROLLER/NAME`."""
    if not path.startswith(HISTORY_ROOT + "/"):
        return None
    parts = path[len(HISTORY_ROOT) + 1 :].split("/")
    return HistoryPath(*parts) if len(parts) == 3 and all(parts) else None


def parse_query(raw: bytes) -> Params:
    params: Params = {}
    if not raw:
        return params
    for part in raw.decode("latin-1").split("&"):
        key, _, value = part.partition("=")
        if key:
            params.setdefault(_plain(key), _plain(value))
    return params


def _plain(text: str) -> str:
    return unquote_plus(text) if "%" in text or "+" in text else text


def truth(params: Params, name: str) -> bool:
    """A boolean parameter as Kubernetes parses it: true if present and not false, so `watch`, `watch=1`, `watch=True`."""
    value = params.get(name)
    return value is not None and value != "0" and value.lower() != "false"


def parse_request(method: str, path: str, params: Params, routes: Routes) -> RequestInfo:
    verb = _VERBS.get(method, method.lower())
    parts = path.split("/")
    if parts[-1] == "":
        parts.pop()
    root = parts[1] if len(parts) > 1 else ""
    if root == "api" and len(parts) > 3:
        return _resource(verb, path, "", parts[2], parts[3:], params, routes)
    if root == "apis" and len(parts) > 4:
        return _resource(verb, path, parts[2], parts[3], parts[4:], params, routes)
    return RequestInfo(verb, path)


def _resource(
    verb: str, path: str, group: str, version: str, rest: list[str], params: Params, routes: Routes
) -> RequestInfo:
    namespace = name = subresource = ""
    plural, within = rest[0], False
    if plural == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        within = len(rest) > 2 and (group != "" or not _of_namespace(version, rest[2], routes))
        if within:
            plural, rest = rest[2], rest[2:]
    if len(rest) > 1:
        name = rest[1]
    if len(rest) > 2:
        subresource = rest[2]
    route = review = None
    if len(rest) <= 3:
        route = routes.kinds.get((group, version), _NOTHING).get(plural)
        if route is None:
            review = routes.reviews.get((group, version), {}).get(plural)
        elif not _well_placed(route, within, namespace, name):
            route = None
    if not name:
        verb = _precise(verb, params)
    return RequestInfo(verb, path, group, version, namespace, plural, name, subresource, route, review)


def _of_namespace(version: str, word: str, routes: Routes) -> bool:
    """Whether `/namespaces/x/word` is a subresource of the namespace rather than a kind within it."""
    route = routes.kinds.get(("", version), {}).get("namespaces")
    return route is not None and word in route.subresources


def _well_placed(route: Route, within: bool, namespace: str, name: str) -> bool:
    """Whether the path fits the scope: namespaced objects are inside a namespace and may be listed across all; others never are."""
    if within:
        return route.resource.namespaced and namespace != ""
    return not route.resource.namespaced or not name


def _precise(verb: str, params: Params) -> str:
    """The verb for a collection: list, watch or deletecollection."""
    if verb == "get":
        return "watch" if params and truth(params, "watch") else "list"
    return "deletecollection" if verb == "delete" else verb
