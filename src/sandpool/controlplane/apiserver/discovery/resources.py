"""The discovery documents of each group and version, in both shapes. Pure."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.apiserver.routes import Review, Route, Routes, Subresource

Json = dict[str, Any]


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
    """Everything at once: of the core group, or of all others. `api_version` is apidiscovery.k8s.io/v2 or its beta."""
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
