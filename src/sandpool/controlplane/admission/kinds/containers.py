"""Rules for the containers of a pod: defaults and checks."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import entry
from sandpool.controlplane.admission.name_rules import dns_label, label_key, port_name
from sandpool.kube.errors import Cause
from sandpool.model.quantities import parse

Container = dict[str, Any]

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "httpGet.scheme": "HTTP",
    "httpGet.path": "/",
}


def defaults(path: str) -> dict[str, Any]:
    table: dict[str, Any] = {
        f"{path}.terminationMessagePath": "/dev/termination-log",
        f"{path}.terminationMessagePolicy": "File",
        f"{path}.resources": {},
        f"{path}.ports[].protocol": "TCP",
        f"{path}.env[].valueFrom.fieldRef.apiVersion": "v1",
    }
    return table | {f"{path}.{probe}.{name}": v for probe in _PROBES for name, v in _PROBE_DEFAULTS.items()}


def values(path: str) -> dict[str, list[str]]:
    return {
        f"{path}.imagePullPolicy": ["Always", "IfNotPresent", "Never"],
        f"{path}.terminationMessagePolicy": ["File", "FallbackToLogsOnError"],
        f"{path}.ports[].protocol": ["SCTP", "TCP", "UDP"],
    }


def completed(containers: list[Container] | None) -> list[Container] | None:
    """Sets defaults: the pull policy by image tag, and requests where only limits are given."""
    if not containers:
        return containers
    done = [_completed(container) for container in containers]
    return containers if all(a is b for a, b in zip(done, containers, strict=True)) else done


def _completed(container: Container) -> Container:
    changes: dict[str, Any] = {}
    if not container.get("imagePullPolicy"):
        changes["imagePullPolicy"] = "Always" if _latest(container.get("image", "")) else "IfNotPresent"
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if limits.keys() - requests.keys():
        changes["resources"] = {**resources, "requests": {**limits, **requests}}
    return {**container, **changes} if changes else container


def _latest(image: str) -> bool:
    """Whether the tag is latest: also if there is neither a tag nor a digest."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return False
    _, colon, tag = name.partition(":")
    return bool(image) and (not colon or tag == "latest")


def check(path: str, container: Container, names: set[str], volumes: set[str]) -> list[Cause]:
    found: list[Cause] = []
    name = container.get("name", "")
    if name:
        found += [causes.invalid(f"{path}.name", name, text) for text in dns_label(name)]
        if name in names:
            found.append(causes.duplicate(f"{path}.name", name))
        names.add(name)
    if not container.get("image"):
        found.append(causes.required(f"{path}.image"))
    found += _check_ports(f"{path}.ports", container.get("ports") or [])
    for index, variable in enumerate(container.get("env") or []):
        found += _check_variable(f"{path}.env[{index}]", variable)
        if len(found) >= causes.MOST_COLLECTED:
            return found
    found += _check_mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes)
    return found + _check_resources(f"{path}.resources", container.get("resources") or {})


def _check_ports(path: str, ports: list[dict[str, Any]]) -> list[Cause]:
    found: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        wrong = port_name(name) if name else ()
        found += [causes.invalid(f"{path}[{index}].name", name, text) for text in wrong]
        if name and not wrong and name in names:
            found.append(causes.duplicate(f"{path}[{index}].name", name))
        names.add(name)
        for field in ("containerPort", "hostPort"):
            number = port.get(field, 0)
            if number and not 1 <= number <= 65535:
                detail = "must be between 1 and 65535, inclusive"
                found.append(causes.invalid(f"{path}[{index}].{field}", number, detail))
        if port.get("containerPort") == 0:
            found.append(causes.required(f"{path}[{index}].containerPort"))
        if len(found) >= causes.MOST_COLLECTED:
            break
    return found


def _check_variable(path: str, variable: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    name, source = variable.get("name", ""), variable.get("valueFrom")
    if not (name.isascii() and name.isprintable() and "=" not in name):
        detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        found.append(causes.invalid(f"{path}.name", name, detail))
    if source is not None and variable.get("value"):
        found.append(causes.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty"))
    return found


def _check_mounts(path: str, mounts: list[dict[str, Any]], volumes: set[str]) -> list[Cause]:
    found: list[Cause] = []
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if name not in volumes:
            found.append(Cause("FieldValueNotFound", f"Not found: {causes.quoted(name)}", f"{path}[{index}].name"))
        if place in places:
            found.append(causes.invalid(f"{path}[{index}].mountPath", place, "must be unique"))
        places.add(place)
        if len(found) >= causes.MOST_COLLECTED:
            break
    return found


def _check_resources(path: str, resources: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            field = entry(f"{path}.{part}", name)
            found += [causes.invalid(field, name, text) for text in _wrong_resource(name)]
            if parse(amount).nanos < 0:
                found.append(causes.invalid(field, amount, "must be greater than or equal to 0"))
            if len(found) >= causes.MOST_COLLECTED:
                return found
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and parse(amount) > parse(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            found.append(causes.invalid(f"{path}.requests", amount, detail))
    return found


def _wrong_resource(name: str) -> tuple[str, ...]:
    if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return ()
    wrong = label_key(name)
    if wrong or "/" in name:
        return wrong
    return ("must be a standard resource type or fully qualified", "must be a standard resource for containers")
