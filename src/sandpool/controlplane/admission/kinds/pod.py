"""Rules for pods: defaults and QoS class of a new pod; later only images, deadlines and tolerations may change.

The numbers of containers, volumes, variables and so on are limited. Kubernetes bounds these only by the size of a request; here one node
works for all tenants. The limits are far above what real pods have, and are documented in docs/reference/pods.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds import containers
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import dns_label, dns_subdomain
from sandpool.kube.errors import Cause
from sandpool.model.quantities import QuantityError, parse

CONTAINERS = 64  # including init containers
VOLUMES = 256
SOURCES = 64  # of a projected volume
PULL_SECRETS = 64
OF_CONTAINER = {"env": 4096, "envFrom": 256, "volumeMounts": 256, "ports": 1024}
RESOURCES = 64  # names in the limits, or in the requests, of a container
_LISTS = ("containers", "initContainers")
_MAX_INT32 = 2**31 - 1
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_DEFAULTS: dict[str, Any] = {
    "spec.dnsPolicy": "ClusterFirst",
    "spec.restartPolicy": "Always",
    "spec.securityContext": {},
    "spec.terminationGracePeriodSeconds": 30,
    "spec.schedulerName": "default-scheduler",
    "spec.enableServiceLinks": True,
    "spec.volumes[].configMap.defaultMode": 420,
    "spec.volumes[].secret.defaultMode": 420,
    "spec.volumes[].projected.defaultMode": 420,
    "spec.volumes[].downwardAPI.defaultMode": 420,
    "spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds": 3600,
    "spec.volumes[].hostPath.type": "",
    **containers.defaults("spec.containers[]"),
    **containers.defaults("spec.initContainers[]"),
}
_VALUES = {
    "spec.restartPolicy": ["Always", "OnFailure", "Never"],
    "spec.dnsPolicy": ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    **containers.values("spec.containers[]"),
    **containers.values("spec.initContainers[]"),
}
_VOLUMES = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "downwardAPI", "configMap", "projected")
canonical = msgspec.json.Encoder(order="sorted").encode  # equal values have equal bytes
_COUNTED = ("cpu", "memory")


def too_much(spec: Body, path: str = "spec") -> list[Cause]:
    """The causes for what exceeds the limits in the spec of a new pod."""
    found = [
        cause
        for name, most in (("volumes", VOLUMES), ("imagePullSecrets", PULL_SECRETS))
        for cause in _counted(f"{path}.{name}", spec.get(name), most)
    ]
    total = sum(len(_items(spec.get(name))) for name in _LISTS)
    if total > CONTAINERS:
        longest = max(_LISTS, key=lambda name: len(_items(spec.get(name))))
        return [*found, causes.too_many(f"{path}.{longest}", total, CONTAINERS)]
    for name in _LISTS:
        for index, container in enumerate(_items(spec.get(name))):
            if type(container) is dict:
                for field, most in OF_CONTAINER.items():
                    found += _counted(f"{path}.{name}[{index}].{field}", container.get(field), most)
                found += _resources(f"{path}.{name}[{index}].resources", container.get("resources"))
    for index, volume in enumerate(_items(spec.get("volumes"))[:VOLUMES]):
        projected = volume.get("projected") if type(volume) is dict else None
        if type(projected) is dict:
            found += _counted(f"{path}.volumes[{index}].projected.sources", projected.get("sources"), SOURCES)
    return found


def too_much_of_sandbox(spec: Any) -> list[Cause]:
    """Like `too_much`, for the pod template of a new Sandbox, before anything is created for it."""
    if type(spec) is not dict:
        return []
    found = _counted("spec.volumeClaimTemplates", spec.get("volumeClaimTemplates"), VOLUMES)
    template = spec.get("podTemplate")
    inner = template.get("spec") if type(template) is dict else None
    return found + (too_much(inner, "spec.podTemplate.spec") if type(inner) is dict else [])


def _resources(path: str, resources: Any) -> list[Cause]:
    if type(resources) is not dict:
        return []
    for part in ("limits", "requests"):  # limits first: they are the defaults of requests
        amounts = resources.get(part)
        if type(amounts) is dict and len(amounts) > RESOURCES:
            return [causes.too_many(f"{path}.{part}", len(amounts), RESOURCES)]
    return []


def _counted(path: str, value: Any, most: int) -> list[Cause]:
    count = len(_items(value))
    return [causes.too_many(path, count, most)] if count > most else []


def _items(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _prepare(body: Body, old: Body | None) -> Body:
    spec: dict[str, Any] = body.get("spec") or {}
    if old is None or spec is not old.get("spec"):
        changes: dict[str, Any] = {}
        for name in _LISTS:
            completed = containers.completed(spec.get(name))
            if completed is not spec.get(name):
                changes[name] = completed
        volumes = spec.get("volumes")
        if volumes and any(len(volume) == 1 and "name" in volume for volume in volumes):
            changes["volumes"] = [{**v, "emptyDir": {}} if len(v) == 1 and "name" in v else v for v in volumes]
        if changes:
            spec = {**spec, **changes}
            body = {**body, "spec": spec}
    if old is None:
        return {**body, "status": {"phase": "Pending", "qosClass": quality(spec)}}
    return body


def _check(body: Body, old: Body | None) -> list[Cause]:
    spec = body.get("spec")
    if type(spec) is not dict:
        return [causes.required("spec.containers")]
    if old is not None and spec is old.get("spec"):
        return []
    if old is None and (large := too_much(spec)):
        return large  # without checking the rest
    found = _check_volumes(spec.get("volumes") or [])
    if spec.get("containers") == []:
        found.append(causes.required("spec.containers"))
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for part in _LISTS:
        for index, container in enumerate(spec.get(part) or []):
            found += containers.check(f"spec.{part}[{index}]", container, names, volumes)
            if len(found) >= causes.MOST_COLLECTED:
                return found
    for name, rule in (("hostname", dns_label), ("subdomain", dns_label), ("serviceAccountName", dns_subdomain)):
        if spec.get(name):
            found += [causes.invalid(f"spec.{name}", spec[name], text) for text in rule(spec[name])]
    if spec.get("nodeName"):
        found += [causes.invalid("spec.nodeName", spec["nodeName"], text) for text in dns_subdomain(spec["nodeName"])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        detail = f"must be between 1 and {_MAX_INT32}, inclusive"
        found.append(causes.invalid("spec.activeDeadlineSeconds", deadline, detail))
    if old is not None:
        found += _check_change(spec, old.get("spec") or {})
    return found


def _check_volumes(volumes: list[dict[str, Any]]) -> list[Cause]:
    found: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        path = f"spec.volumes[{index}]"
        if name:
            found += [causes.invalid(f"{path}.name", name, text) for text in dns_label(name)]
        if name in names:
            found.append(causes.duplicate(f"{path}.name", name))
        names.add(name)
        types = sorted(volume.keys() - {"name"}, key=lambda key: _VOLUMES.index(key) if key in _VOLUMES else -1)
        detail = "may not specify more than 1 volume type"
        found += [causes.forbidden(f"{path}.{further}", detail) for further in types[1:]]
        if len(found) >= causes.MOST_COLLECTED:
            break
    return found


def _check_change(spec: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    for name in _LISTS:
        if len(spec.get(name) or []) != len(before.get(name) or []):
            return [causes.forbidden(f"spec.{name}", "pod updates may not add or remove containers")]
    found: list[Cause] = []
    deadline, old_deadline = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if deadline is not None and old_deadline is not None and deadline > old_deadline:
        detail = "must be less than or equal to previous value"
        return [causes.invalid("spec.activeDeadlineSeconds", deadline, detail)]
    if deadline is None and old_deadline is not None:
        detail = "must not update from a positive integer to nil value"
        found.append(causes.invalid("spec.activeDeadlineSeconds", None, detail))
    tolerations = set(map(canonical, spec.get("tolerations") or []))
    if any(canonical(toleration) not in tolerations for toleration in before.get("tolerations") or []):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        found.append(causes.forbidden("spec.tolerations", detail))
    if _settled(spec, before) != _settled(before, before):
        found.append(causes.forbidden("spec", _FIXED))
    return found


def _settled(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The part of the spec that may not change."""
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    fixed = {name: value for name, value in spec.items() if name not in free and value not in (None, {}, [], "")}
    for name in _LISTS:
        if name in fixed:
            fixed[name] = [{**container, "image": ""} for container in fixed[name]]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return fixed


POD = KindRules(
    rounds=4, cacheable=True, known_finalizers=True, defaults=_DEFAULTS, values=_VALUES, prepare=_prepare, check=_check
)


def quality(spec: dict[str, Any]) -> str:
    """The QoS class. Guaranteed: every container has limits of cpu and memory, and equal requests. BestEffort: none has any."""
    guaranteed, anything = True, False
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or []:
            resources = container.get("resources") or {}
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            anything = anything or any(_some(limits, name) or _some(requests, name) for name in _COUNTED)
            guaranteed = guaranteed and all(_same(limits, requests, name) for name in _COUNTED)
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _some(amounts: dict[str, Any], name: str) -> bool:
    return name in amounts and _nanos(amounts[name]) > 0


def _same(limits: dict[str, Any], requests: dict[str, Any], name: str) -> bool:
    return _some(limits, name) and _nanos(limits[name]) == _nanos(requests.get(name, limits[name]))


def _nanos(amount: Any) -> int:
    try:
        return parse(amount).nanos
    except QuantityError:
        return 0  # the schema check refuses it
