"""Roles and who has them. With namespaces to watch, the rights in them are Roles; only those on kinds without a namespace are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sandpool.install.labelled import labelled
from sandpool.install.rules import CLUSTER, NAMESPACED, OWN, Rule
from sandpool.install.settings import CONTROLLER, Settings

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
    """A role and its binding, in one namespace or, without one, in all."""
    kind = "Role" if namespace else "ClusterRole"
    for a_kind, body in (
        (kind, {"rules": [rule.body() for rule in rules]}),
        (f"{kind}Binding", {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [account]}),
    ):
        yield {"apiVersion": f"{RBAC}/v1", "kind": a_kind, "metadata": labelled(name, namespace, component), **body}
