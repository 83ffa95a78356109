"""Discovery: lists the groups, versions and resources that are served, in both formats (legacy and aggregated).

The documents are computed from the routes, encoded and compressed once, and selected by path and Accept header.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.exchange import Headers
from sandpool.controlplane.apiserver.negotiate import Media, not_acceptable, wanted
from sandpool.controlplane.apiserver.response import RawResponse, accepts_gzip
from sandpool.controlplane.apiserver.routes import Review, Route, Routes, Subresource

WORTH_GZIP: Final = 2048
AGGREGATED: Final = ("v2", "v2beta1")
Json = dict[str, Any]


class Page:
    """One document, encoded."""

    def __init__(self, content: Any, media: str = "application/json") -> None:
        self.body: bytes = content if isinstance(content, bytes) else msgspec.json.encode(content)
        self.etag = f'"{hashlib.sha256(self.body).hexdigest().upper()}"'.encode()
        self._media = media.encode()
        self._packed: bytes | None = None

    def answer(
        self, headers: dict[bytes, bytes], extra: Headers | None = None, cache: bytes = b"no-cache, private"
    ) -> RawResponse:
        common = [(b"cache-control", cache), (b"etag", self.etag), (b"vary", b"Accept"), *(extra or ())]
        if headers.get(b"if-none-match") == self.etag:
            return RawResponse(b"", 304, common)
        common.append((b"content-type", self._media))
        if len(self.body) < WORTH_GZIP or not accepts_gzip(headers.get(b"accept-encoding")):
            return RawResponse(self.body, 200, common)
        if self._packed is None:
            packer = zlib.compressobj(6, zlib.DEFLATED, 31)
            self._packed = packer.compress(self.body) + packer.flush()
        return RawResponse(self._packed, 200, [*common, (b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")])


class Discovery:
    """All pages below /api and /apis that are not resources."""

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
        """The page at a path, in the preferred format of the client; None if there is no page. Raises NotAcceptable."""
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


def group_list(routes: Routes) -> Json:
    groups = [_group(group, version) for group, version in routes.groups if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str, version: str) -> Json:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, version)}


def _group(group: str, version: str) -> Json:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def resource_list(routes: Routes, group: str, version: str) -> Json:
    resources: list[Json] = []
    for route in routes.kinds.get((group, version), {}).values():
        resources.append(_resource(route))
        resources += [_subresource(route, sub) for sub in route.subresources.values()]
    resources += [_review(review) for review in routes.reviews.get((group, version), {}).values()]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}


def _resource(route: Route) -> Json:
    resource = route.resource
    found: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(route.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    return found


def _subresource(route: Route, sub: Subresource) -> Json:
    found: Json = {
        "name": f"{route.resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": route.resource.namespaced,
        "kind": sub.kind or route.resource.kind,
        "verbs": list(sub.verbs),
    }
    if sub.version:
        found |= {"group": sub.group, "version": sub.version}
    return found


def _review(review: Review) -> Json:
    return {
        "name": review.plural,
        "singularName": review.kind.lower(),
        "namespaced": False,
        "kind": review.kind,
        "verbs": ["create"],
    }


def aggregated(routes: Routes, core: bool, api_version: str) -> Json:
    """Aggregated discovery of the core group, or of all other groups. `api_version` is apidiscovery.k8s.io/v2 or its beta."""
    groups = [entry for entry in routes.groups if (entry[0] == "") is core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": api_version,
        "metadata": {},
        "items": [_aggregated_group(routes, group, version) for group, version in groups],
    }


def _aggregated_group(routes: Routes, group: str, version: str) -> Json:
    resources = [_aggregated_resource(route) for route in routes.kinds.get((group, version), {}).values()]
    resources += [_aggregated_review(review) for review in routes.reviews.get((group, version), {}).values()]
    return {
        "metadata": {"name": group} if group else {},
        "versions": [{"version": version, "resources": resources, "freshness": "Current"}],
    }


def _kind(group: str, version: str, kind: str) -> Json:
    return {"group": group, "version": version, "kind": kind}


def _aggregated_resource(route: Route) -> Json:
    resource = route.resource
    own = _kind(resource.group, resource.version, resource.kind)
    found: Json = {
        "resource": resource.plural,
        "responseKind": own,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(route.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    if route.subresources:
        found["subresources"] = [_aggregated_sub(route, sub) for sub in route.subresources.values()]
    return found


def _aggregated_sub(route: Route, sub: Subresource) -> Json:
    resource = route.resource
    group, version = (sub.group, sub.version) if sub.version else (resource.group, resource.version)
    return {
        "subresource": sub.name,
        "responseKind": _kind(group, version, sub.kind or resource.kind),
        "verbs": list(sub.verbs),
    }


def _aggregated_review(review: Review) -> Json:
    return {
        "resource": review.plural,
        "responseKind": _kind(review.group, review.version, review.kind),
        "scope": "Cluster",
        "singularResource": review.kind.lower(),
        "verbs": ["create"],
    }
