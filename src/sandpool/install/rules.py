"""Every permission of the controller and of the router, with its purpose, and the roles that grant them.

This table is the only source: `sandpool install` and the Helm chart are both rendered from it, and a test compares it with
the calls that the code makes. Nothing here is granted for comfort: a verb without a call is removed, a call without a
verb fails the tests. With namespaces to watch, permissions are Roles there; only cluster-scoped kinds need a ClusterRole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sandpool.install.settings import CONTROLLER, Settings, labelled
from sandpool.model.kinds import (
    CLAIMS,
    EVENTS,
    LEASES,
    NETWORK_POLICIES,
    NODES,
    OURS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.resource import Resource
from sandpool.router.kubernetes import ACCESS_REVIEWS, TOKEN_REVIEWS

LEASE = "a3317529.agent-sandbox.x-k8s.io"
"""The lease that other implementations of these kinds hold, too: in one namespace at most one of them acts."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`names`: only objects of these names; none: all of them."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """As a Role has it."""
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": [self.resource], **names, "verbs": list(self.verbs)}


def _rule(resource: Resource[Any], verbs: str, why: str, *, subresource: str = "", names: tuple[str, ...] = ()) -> Rule:
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return Rule(resource.group, plural, tuple(verbs.split()), why, names)


_BLOCK = "set blockOwnerDeletion on its objects, where the cluster checks that right"

CORE = (
    _rule(SANDBOXES, "get list watch create patch delete", "make members and cold sandboxes, hand them over, end them"),
    _rule(SANDBOXES, "patch", "publish", subresource="status"),
    _rule(SANDBOXES, "update", _BLOCK, subresource="finalizers"),
    _rule(PODS, "get list watch create patch delete", "run sandboxes"),
    _rule(SERVICES, "get list watch create patch delete", "give sandboxes a name in DNS"),
    _rule(PERSISTENT_VOLUME_CLAIMS, "get list watch create patch", "give sandboxes storage; it is never deleted"),
    _rule(EVENTS, "create patch", "report to users what happened"),
)
"""For sandboxes alone."""

EXTENSIONS = (
    _rule(CLAIMS, "get list watch patch delete", "serve them, note when they were seen, end those that expired"),
    _rule(CLAIMS, "patch", "bind and publish", subresource="status"),
    _rule(CLAIMS, "update", _BLOCK, subresource="finalizers"),
    _rule(POOLS, "get list watch", "fill them, and ask whether one still exists before something is made for it again"),
    _rule(POOLS, "patch", "publish", subresource="status"),
    _rule(POOLS, "update", _BLOCK, subresource="finalizers"),
    _rule(TEMPLATES, "get list watch patch", "read blueprints, label them by the hash that their policy selects"),
    _rule(NETWORK_POLICIES, "get list watch create patch delete", "isolate the sandboxes of a template"),
)
"""For claims, pools and templates."""

NAMESPACED = (*CORE, *EXTENSIONS)
"""In every namespace, or in each one that is watched."""

DEFINITIONS = (
    Rule(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        ("get",),
        "report at the start which definition is missing or too old",
        tuple(resource.group_resource for resource in OURS),
    ),
)
PLACES = (_rule(NODES, "list watch", "hand out nothing that runs on a node that is being drained"),)
CLUSTER = (*DEFINITIONS, *PLACES)
"""Of kinds that are in no namespace."""

OWN = (
    _rule(LEASES, "create", "be one of several replicas of which one acts"),
    _rule(LEASES, "get patch", "take, renew and release its own lease, and touch no other", names=(LEASE,)),
)
"""In the namespace where the controller runs."""

STORAGE = (_rule(PERSISTENT_VOLUME_CLAIMS, "delete", "become the owner of storage, where the cluster asks for that"),)
"""Only if an operator enables it: nothing is ever deleted with it."""

ROUTER_NAMESPACED = (_rule(SANDBOXES, "list watch", "know where sandboxes are, and whose"),)
ROUTER_ACTIVITY = (_rule(SANDBOXES, "patch", "note on a sandbox when it was last used"),)
"""In every namespace, or in each one that is served; the second unless that is switched off."""
ROUTER_CLUSTER = (
    _rule(TOKEN_REVIEWS, "create", "ask whom a token belongs to"),
    _rule(ACCESS_REVIEWS, "create", "ask whether they may use the sandboxes of a namespace"),
)

USERS = (
    _rule(SANDBOXES, "create", "use sandboxes through the router: run programs, reach ports", subresource="connect"),
)
"""For users who may edit a namespace: an aggregated role that Kubernetes adds to its own `edit`. The router itself does not have it."""


RBAC = "rbac.authorization.k8s.io"
LEADER_ELECTION = f"{CONTROLLER}-leader-election"


def access(settings: Settings) -> Iterator[dict[str, Any]]:
    account = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": settings.namespace}
    if settings.watch_namespaces:
        # Several installations may each watch their own namespaces: they must not overwrite each other's.
        yield from granted(account, f"{CONTROLLER}-{settings.namespace}", "", CLUSTER)
    else:
        yield from granted(account, CONTROLLER, "", (*NAMESPACED, *CLUSTER))
    for namespace in settings.watch_namespaces:
        yield from granted(account, CONTROLLER, namespace, NAMESPACED)
    yield from granted(account, LEADER_ELECTION, settings.namespace, OWN)


def granted(
    account: dict[str, str], name: str, namespace: str, rules: Sequence[Rule], component: str = "controller"
) -> Iterator[dict[str, Any]]:
    """A role and its binding: a Role in one namespace or, without one, a ClusterRole."""
    kind = "Role" if namespace else "ClusterRole"
    for a_kind, body in (
        (kind, {"rules": [rule.body() for rule in rules]}),
        (f"{kind}Binding", {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [account]}),
    ):
        yield {"apiVersion": f"{RBAC}/v1", "kind": a_kind, "metadata": labelled(name, namespace, component), **body}
