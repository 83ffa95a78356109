"""Pods: complete on creation, and then fixed but for images, deadlines and tolerations."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds import containers
from sandpool.controlplane.admission.kinds.amounts import too_much
from sandpool.controlplane.admission.kinds.quality import quality
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.namerules import dns_label, dns_subdomain
from sandpool.kube.errors import Cause

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
_LISTS = ("containers", "initContainers")
_TEXT = msgspec.json.Encoder(order="sorted").encode  # the same for what is the same


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
        return large  # alone: nobody has to look through the rest
    found = _check_volumes(spec.get("volumes") or [])
    if spec.get("containers") == []:
        found.append(causes.required("spec.containers"))
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for part in _LISTS:
        for index, container in enumerate(spec.get(part) or []):
            found += containers.check(f"spec.{part}[{index}]", container, names, volumes)
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
    tolerations = set(map(_TEXT, spec.get("tolerations") or []))
    if any(_TEXT(toleration) not in tolerations for toleration in before.get("tolerations") or []):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        found.append(causes.forbidden("spec.tolerations", detail))
    if _settled(spec, before) != _settled(before, before):
        found.append(causes.forbidden("spec", _FIXED))
    return found


def _settled(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What may not change."""
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    fixed = {name: value for name, value in spec.items() if name not in free and value not in (None, {}, [], "")}
    for name in _LISTS:
        if name in fixed:
            fixed[name] = [{**container, "image": ""} for container in fixed[name]]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return fixed


POD = KindRules(
    rounds=4, alike=True, known_finalizers=True, defaults=_DEFAULTS, values=_VALUES, prepare=_prepare, check=_check
)
