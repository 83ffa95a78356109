"""What a run is about: its namespaces and nodes, and the templates, pools and claims that its users write, by seeded choice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sandpool.model.patches import Patch, json_patch
from sandpool.model.times import seconds


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace, and the names of the templates and pools that it may have."""

    namespace: str
    templates: tuple[str, ...]
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setup:
    """The tenants and nodes of a run."""

    tenants: tuple[Tenant, ...]
    nodes: tuple[str, ...]


def choose_setup(chance: Random) -> Setup:
    """Names repeat across namespaces on purpose, so that code which mixes them up is found."""
    tenants = tuple(
        Tenant(
            namespace,
            tuple(f"template-{number}" for number in range(chance.choice((1, 2)))),
            tuple(f"pool-{number}" for number in range(chance.choice((1, 1, 2)))),
        )
        for namespace in ("red", "blue")
    )
    return Setup(tenants, tuple(f"node-{number}" for number in range(chance.choice((3, 4, 5)))))


Body = dict[str, Any]
_STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def template(name: str, chance: Random) -> Body:
    spec: Body = {
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": f"python:{chance.randrange(4)}"}]}},
        "envVarsInjectionPolicy": chance.choice(("Allowed", "Overrides", "Overrides", "Disallowed")),
        "volumeClaimTemplatesPolicy": chance.choice(("Allowed", "Overrides", "Disallowed")),
        "networkPolicyManagement": chance.choice(("Managed", "Unmanaged", "Unmanaged")),
    }
    if chance.random() < 0.2:
        spec["service"] = True
    if chance.random() < 0.15:
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": _STORAGE}]
    return {"metadata": {"name": name}, "spec": spec}


def another_image(chance: Random) -> Patch:
    """Of a template: a change after which its members follow it no more, unless it is the image that it had."""
    image = f"python:{chance.randrange(4)}"
    return json_patch([{"op": "replace", "path": "/spec/podTemplate/spec/containers/0/image", "value": image}])


def pool(name: str, tenant: Tenant, chance: Random) -> Body:
    return {
        "metadata": {"name": name},
        "spec": {
            "sandboxTemplateRef": {"name": chance.choice(tenant.templates)},
            "replicas": chance.randrange(1, 6),
            "updateStrategy": strategy(chance),
        },
    }


def strategy(chance: Random) -> Body:
    kind = chance.choice(("OnReplenish", "Recreate", "Recreate", "RollingUpdate", "RollingUpdate"))
    if kind != "RollingUpdate" or chance.random() < 0.3:
        return {"type": kind, "rollingUpdate": None}
    bounds = {"maxUnavailable": chance.choice((0, 1, "25%", "50%")), "maxSurge": chance.choice((0, 1, "25%", "100%"))}
    return {"type": kind, "rollingUpdate": bounds}


def claim(name: str, pool: str, chance: Random, now: datetime) -> Body:
    spec: Body = {"warmPoolRef": {"name": pool}}
    kind = chance.random()
    if kind < 0.1:
        spec["env"] = [{"name": "TASK", "value": name}]
    elif kind < 0.16:
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "work"}, "spec": _STORAGE}]
    elif kind < 0.26:
        spec["additionalPodMetadata"] = {"labels": {"sandbox.users.io/task": name}}
    if chance.random() < 0.3:
        spec["lifecycle"] = lifecycle(chance, now)
    return {"metadata": {"name": name}, "spec": spec}


def lifecycle(chance: Random, now: datetime) -> Body:
    body: Body = {"shutdownPolicy": chance.choice(("Delete", "DeleteForeground", "Retain"))}
    if chance.random() < 0.7:
        body["shutdownTime"] = seconds(now + timedelta(seconds=chance.randrange(-1, 40)))
    if chance.random() < 0.5:
        body["ttlSecondsAfterFinished"] = chance.choice((0, 1, 10))
    return body


def sandbox(name: str, chance: Random, now: datetime) -> Body:
    spec: Body = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python:0"}]}}}
    if chance.random() < 0.5:
        spec["shutdownTime"] = seconds(now + timedelta(seconds=chance.randrange(1, 30)))
        spec["shutdownPolicy"] = chance.choice(("Delete", "Retain"))
    if chance.random() < 0.3:
        spec["service"] = True
    return {"metadata": {"name": name}, "spec": spec}
