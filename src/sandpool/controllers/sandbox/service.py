"""The headless Service of a sandbox. Pure.

`spec.service`: true creates and keeps it, false removes it, unset keeps one that is ours and creates none. A Service of somebody else matters
only if the sandbox asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from sandpool.controllers.sandbox.steps import (
    Body,
    Change,
    Create,
    Step,
    adopted_metadata,
    change,
    controlled_by,
    delete,
    identity,
    tracking,
)
from sandpool.controllers.sandbox.view import Holding, SandboxView, adoptable, holding
from sandpool.model.core import Service, ServicePort
from sandpool.model.kinds import SERVICES
from sandpool.model.labels import ADOPTABLE
from sandpool.model.names import dns_label_1035
from sandpool.model.sandbox import Sandbox


def plan_service(view: SandboxView) -> tuple[tuple[Step, ...], str]:
    """The steps, and why the Service cannot be as asked for."""
    sandbox, service = view.sandbox, view.service
    wanted = sandbox.spec.service
    if service is None:
        return _create(sandbox) if wanted else ((), "")
    if view.departing(service):
        return (), ""  # its DELETED event will wake us
    match holding(service, sandbox):
        case Holding.OURS if wanted is False:
            return (delete(SERVICES, service.metadata, "spec.service is false"),), ""
        case Holding.OURS:
            drift = service_drift(sandbox, service)
            return ((drift,) if drift else ()), ""
        case Holding.NOBODY if wanted:
            return _adopt(sandbox, service)
        case Holding.OTHER if wanted:
            owner = service.metadata.controller
            assert owner is not None
            return (), f"Service {service.metadata.name} belongs to {owner.kind} {owner.name}; rename the sandbox"
        case _:
            return (), ""


def service_drift(sandbox: Sandbox, service: Service) -> Change | None:
    """The patch that our Service needs, or None. Ports follow the pod only while spec.service is true."""
    metadata: Body = {}
    labels = {key: value for key, value in tracking(sandbox).items() if service.metadata.labels.get(key) != value}
    if labels:
        metadata["labels"] = labels
    spec = _selector_patch(sandbox, service)
    if sandbox.spec.service:
        spec |= _ports_patch(sandbox, service)
    if not metadata and not spec:
        return None
    body = {"metadata": metadata, **({"spec": spec} if spec else {})}
    step = change(SERVICES, service.metadata, body, "follow the sandbox")
    # A pod made by another implementation gets the uid label first: until then the new selector would match nothing.
    return replace(step, gated="selector" in spec)


class _Port(NamedTuple):
    number: int
    protocol: str


def service_ports(sandbox: Sandbox) -> list[Body]:
    """Every port that a container or a native sidecar declares, once, sorted; named ports keep their name."""
    names: dict[_Port, str] = {}
    for port, name in _declared(msgspec.json.decode(sandbox.spec.pod_template.spec)):
        taken = name in names.values()
        if port not in names or (not names[port] and name):
            names[port] = "" if taken else name
    used = {name for name in names.values() if name}
    ports = []
    for port in sorted(names):
        name = names[port] or _free(f"p-{port.number}-{port.protocol.lower()}", used)
        used.add(name)
        ports.append({"name": name, "port": port.number, "protocol": port.protocol, "targetPort": port.number})
    return ports


def _declared(spec: dict[str, Any]) -> Iterator[tuple[_Port, str]]:
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            if number := port.get("containerPort"):
                yield _Port(number, port.get("protocol") or "TCP"), port.get("name") or ""


def _free(name: str, used: set[str]) -> str:
    candidate, number = name, 2
    while candidate in used:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _create(sandbox: Sandbox) -> tuple[tuple[Step, ...], str]:
    name = sandbox.metadata.name
    if wrong := dns_label_1035(name):
        return (), f"spec.service: no Service can be called {name}: {wrong[0]}; use another name or unset spec.service"
    metadata = {
        "name": name,
        "namespace": sandbox.metadata.namespace,
        "labels": tracking(sandbox),
        "ownerReferences": controlled_by(sandbox),
    }
    spec: Body = {"clusterIP": "None", "selector": identity(sandbox)}
    if ports := service_ports(sandbox):
        spec["ports"] = ports
    return (Create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}),), ""


def _adopt(sandbox: Sandbox, service: Service) -> tuple[tuple[Step, ...], str]:
    name = service.metadata.name
    if not adoptable(service, sandbox):
        hint = f"label it {ADOPTABLE}=true to let this sandbox use it, or delete it"
        return (), f"Service {name} exists and nobody owns it; {hint}"
    if service.spec.cluster_ip not in ("None", ""):
        return (), f"Service {name} is not headless, and spec.clusterIP cannot change; delete it"
    spec = _selector_patch(sandbox, service) | _ports_patch(sandbox, service)
    body = {"metadata": adopted_metadata(service, sandbox), **({"spec": spec} if spec else {})}
    return (change(SERVICES, service.metadata, body, "take it over", takes=True),), ""


def _selector_patch(sandbox: Sandbox, service: Service) -> Body:
    wanted = identity(sandbox)
    if service.spec.selector == wanted:
        return {}
    return {"selector": {**dict.fromkeys(service.spec.selector), **wanted}}


def _ports_patch(sandbox: Sandbox, service: Service) -> Body:
    """The ports, if those fields that we manage differ. Other fields of a port stay otherwise."""
    wanted = service_ports(sandbox)
    if [_managed(port) for port in service.spec.ports] == wanted:
        return {}
    return {"ports": wanted or None}


def _managed(port: ServicePort) -> Body:
    return {"name": port.name, "port": port.port, "protocol": port.protocol, "targetPort": port.target_port}
