"""Rules for kinds that have only a few: Namespaces, Nodes, Leases, Events, ServiceAccounts, NetworkPolicies, RuntimeClasses."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import check_labels, dns_label, label_key, label_value, path_segment
from sandpool.kube.errors import Cause
from sandpool.model.core import POLICY_ENTRIES

_NAME_LABEL = "kubernetes.io/metadata.name"
_FIXED_ONCE_SET = 'node updates may not change {} except from "" to valid'


def _prepare_namespace(body: Body, old: Body | None) -> Body:
    meta = body.get("metadata") or {}
    name, labels = meta.get("name", ""), meta.get("labels") or {}
    if name and labels.get(_NAME_LABEL) != name:
        body = {**body, "metadata": {**meta, "labels": {**labels, _NAME_LABEL: name}}}
    if old is None:
        spec = body.get("spec") or {}
        finalizers = spec.get("finalizers") or []
        if "kubernetes" not in finalizers:
            spec = {**spec, "finalizers": [*finalizers, "kubernetes"]}
        return {**body, "spec": spec, "status": {"phase": "Active"}}
    # Only the finalize subresource may change these.
    if body.get("spec") is not old.get("spec"):
        body = {**body, "spec": old.get("spec") or {}}
    return body


def _check_namespace(body: Body, old: Body | None) -> list[Cause]:
    """Checks that the name is a valid label value, because it is also the label kubernetes.io/metadata.name."""
    if old is not None:
        return []
    name = (body.get("metadata") or {}).get("name", "")
    return [causes.invalid("metadata.labels", name, text) for text in label_value(name)]


def _check_node(body: Body, old: Body | None) -> list[Cause]:
    if old is None or body.get("spec") is old.get("spec"):
        return []
    spec, before = body.get("spec") or {}, old.get("spec") or {}
    found: list[Cause] = []
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        found.append(causes.forbidden("spec.podCIDRs", _FIXED_ONCE_SET.format("podCIDR")))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        found.append(causes.forbidden("spec.providerID", _FIXED_ONCE_SET.format("providerID")))
    return found


def _prepare_node(body: Body, old: Body | None) -> Body:
    status = body.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        return {**body, "status": {**status, "allocatable": status["capacity"]}}
    return body


def _check_lease(body: Body, old: Body | None) -> list[Cause]:
    spec = body.get("spec") or {}
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if spec.get("preferredHolder") and not spec.get("strategy"):
        detail = "may only be specified if `strategy` is defined"
        found.append(causes.forbidden("spec.preferredHolder", detail))
    return found


def _check_event(body: Body, old: Body | None) -> list[Cause]:
    """Checks what every Event must satisfy. The stricter rules of the events.k8s.io group do not apply, because it is not served."""
    found: list[Cause] = []
    namespace = (body.get("metadata") or {}).get("namespace", "")
    about = (body.get("involvedObject") or {}).get("namespace", "")
    new_style = bool(body.get("eventTime"))
    free = ("default", "kube-system") if new_style else ("", "default")
    if (not about and namespace not in free) or (about and about != namespace and not new_style):
        found.append(causes.invalid("involvedObject.namespace", about, "does not match event.namespace"))
    if new_style:
        reporter = body.get("reportingComponent") or ""
        needed = ("reportingComponent", "reportingInstance", "action", "reason")
        found += [causes.required(name) for name in needed if not body.get(name)]
        found += [causes.invalid("reportingComponent", reporter, text) for text in label_key(reporter)]
        for name, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
            if len(body.get(name) or "") > limit:
                found.append(causes.invalid(name, "", f"can have at most {limit} characters"))
    return found


def _prepare_policy(body: Body, old: Body | None) -> Body:
    spec = body.get("spec")
    if type(spec) is not dict or spec.get("policyTypes"):
        return body
    types = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**body, "spec": {**spec, "policyTypes": types}}


def _check_policy(body: Body, old: Body | None) -> list[Cause]:
    spec = body.get("spec") or {}
    types = spec.get("policyTypes") or []
    labels = (spec.get("podSelector") or {}).get("matchLabels") or {}
    found = check_labels("spec.podSelector.matchLabels", labels.items())
    if old is None or spec is not old.get("spec"):
        found += _too_large(spec)
    if len(types) > 2:
        return [*found, causes.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    known = ["Ingress", "Egress"]
    return found + [
        causes.not_supported(f"spec.policyTypes[{i}]", kind, known) for i, kind in enumerate(types) if kind not in known
    ]


def _too_large(spec: Body) -> list[Cause]:
    """Limits the size of a policy: every connection of a pod is compared with all its rules, every pod of the namespace with its selector."""
    rules = [rule for rule in spec.get("egress") or [] if type(rule) is dict]
    peers = [peer for rule in rules for peer in rule.get("to") or [] if type(peer) is dict]
    blocks = [(peer.get("ipBlock") or {}).get("except") or [] for peer in peers]
    ports = [rule.get("ports") or [] for rule in rules]
    entries = len(rules) + len(peers) + sum(map(len, blocks)) + sum(map(len, ports))
    selector = spec.get("podSelector") or {}
    expressions = [each for each in selector.get("matchExpressions") or [] if type(each) is dict]
    terms = len(selector.get("matchLabels") or {}) + sum(1 + len(each.get("values") or ()) for each in expressions)
    found = {"spec.egress": entries, "spec.podSelector": terms}
    return [causes.too_many(field, size, POLICY_ENTRIES) for field, size in found.items() if size > POLICY_ENTRIES]


def _check_runtime_class(body: Body, old: Body | None) -> list[Cause]:
    handler: Any = body.get("handler", "")
    found = [causes.invalid("handler", handler, text) for text in dns_label(handler)] if handler else []
    if old is not None and handler != old.get("handler", ""):
        found.append(causes.immutable("handler", handler))
    return found


NAMESPACE = KindRules(known_finalizers=True, name=dns_label, prepare=_prepare_namespace, check=_check_namespace)
NODE = KindRules(rounds=4, known_finalizers=True, keeps_status=True, prepare=_prepare_node, check=_check_node)
LEASE = KindRules(check=_check_lease)
EVENT = KindRules(rounds=2, name=path_segment, loose=("involvedObject", "related"), check=_check_event)
SERVICE_ACCOUNT = KindRules(rounds=4, known_finalizers=True)
NETWORK_POLICY = KindRules(
    known_finalizers=True,
    defaults={"spec.ingress[].ports[].protocol": "TCP", "spec.egress[].ports[].protocol": "TCP"},
    prepare=_prepare_policy,
    check=_check_policy,
)
RUNTIME_CLASS = KindRules(rounds=4, known_finalizers=True, check=_check_runtime_class)
