"""Rules for Services: ports, and a cluster IP that never changes. The IP itself is not assigned here."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import check_labels, dns_label, port_name
from sandpool.kube.errors import Cause

_DEFAULTS = {
    "spec.type": "ClusterIP",
    "spec.sessionAffinity": "None",
    "spec.ports[].protocol": "TCP",
}
_VALUES = {
    "spec.type": ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    "spec.sessionAffinity": ["ClientIP", "None"],
    "spec.ports[].protocol": ["SCTP", "TCP", "UDP"],
}
_HEADLESS = {"clusterIPs": ["None"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def _prepare(body: Body, old: Body | None) -> Body:
    if old is None:
        body = {**body, "status": {"loadBalancer": {}}}
    spec = body.get("spec")
    if type(spec) is not dict or (old is not None and spec is old.get("spec")):
        return body
    changes: dict[str, Any] = {}
    ports = spec.get("ports") or []
    if any("targetPort" not in port and "port" in port for port in ports):
        changes["ports"] = [{"targetPort": port["port"], **port} if "port" in port else port for port in ports]
    if spec.get("type") != "ExternalName":
        if "internalTrafficPolicy" not in spec:
            changes["internalTrafficPolicy"] = "Cluster"
        if spec.get("clusterIP") == "None":
            changes.update({name: value for name, value in _HEADLESS.items() if name not in spec})
        before = (old or {}).get("spec") or {}
        changes.update({name: before[name] for name in _ADDRESSES if name in before and name not in spec})
    return {**body, "spec": {**spec, **changes}} if changes else body


def _check(body: Body, old: Body | None) -> list[Cause]:
    spec = body.get("spec") or {}
    if old is not None and spec is old.get("spec"):
        return []
    found: list[Cause] = []
    ports = spec.get("ports") or []
    external = spec.get("type") == "ExternalName"
    if not ports and not external and spec.get("clusterIP") != "None":
        found.append(causes.required("spec.ports"))
    names: set[str] = set()
    for index, port in enumerate(ports):
        found += _check_port(f"spec.ports[{index}]", port, len(ports) > 1, names)
        if len(found) >= causes.MOST_COLLECTED:
            break
    found += check_labels("spec.selector", (spec.get("selector") or {}).items())
    if external and not spec.get("externalName"):
        found.append(causes.required("spec.externalName"))
    if old is not None:
        found += _address_stays(spec, old.get("spec") or {})
    return found


def _check_port(path: str, port: dict[str, Any], named: bool, names: set[str]) -> list[Cause]:
    found: list[Cause] = []
    name, number, target = port.get("name", ""), port.get("port", 0), port.get("targetPort", 0)
    if name:
        found += [causes.invalid(f"{path}.name", name, text) for text in dns_label(name)]
        if name in names:
            found.append(causes.duplicate(f"{path}.name", name))
        names.add(name)
    elif named:
        found.append(causes.required(f"{path}.name"))
    found += _port_number(f"{path}.port", number)
    if type(target) is str:
        found += [causes.invalid(f"{path}.targetPort", target, text) for text in port_name(target)]
    else:
        found += _port_number(f"{path}.targetPort", target)
    return found


def _port_number(field: str, number: Any) -> list[Cause]:
    if 1 <= number <= 65535:
        return []
    return [causes.invalid(field, number, "must be between 1 and 65535, inclusive")]


def _address_stays(spec: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    old_address, address = before.get("clusterIP"), spec.get("clusterIP")
    if not old_address or old_address == address or "ExternalName" in (spec.get("type"), before.get("type")):
        return []
    return [causes.invalid("spec.clusterIPs[0]", [address] if address else None, "may not change once set")]


SERVICE = KindRules(
    known_finalizers=True,
    name=dns_label,  # since 1.36 a service's name may start with a digit
    defaults=_DEFAULTS,
    values=_VALUES,
    loose=("status", "spec"),
    prepare=_prepare,
    check=_check,
)
