"""Network isolation first: no sandbox is made from a template before the NetworkPolicy that the template asks for exists."""

from __future__ import annotations

from sandpool.controllers.template.policy import marked, owned, policy_name
from sandpool.loop.cache import Cache
from sandpool.model.core import NetworkPolicy
from sandpool.model.labels import TEMPLATE_REF, TEMPLATE_REF_HASH
from sandpool.model.metadata import Key
from sandpool.model.template import SandboxTemplate


def missing_policy(template: SandboxTemplate, policies: Cache[NetworkPolicy]) -> str | None:
    """The message of what is missing; None if nothing. A foreign policy of that name protects nothing."""
    if not template.spec.managed_network:
        return None
    name = policy_name(template.metadata.name)
    policy = policies.get(Key(template.metadata.namespace, name))
    if policy is None or policies.leaving(policy):
        return f"the NetworkPolicy {name} of template {template.metadata.name} does not exist yet; if it does not appear, see the Events of the template"
    meta = policy.metadata
    if marked(meta, template.metadata.name) or owned(meta, template.metadata.name):
        return None
    return (
        f"a NetworkPolicy {name} exists that does not belong to template {template.metadata.name}: "
        "delete it, or set networkPolicyManagement of the template to Unmanaged"
    )


def policy_key(template: SandboxTemplate) -> Key:
    """The key of the NetworkPolicy that protects sandboxes of the template."""
    return Key(template.metadata.namespace, policy_name(template.metadata.name))


def policy_facts(policy: NetworkPolicy) -> object:
    """The parts of a policy that `missing_policy` reads: if none of them changed, no reconcile is needed."""
    meta = policy.metadata
    marks = meta.labels.get(TEMPLATE_REF_HASH), meta.annotations.get(TEMPLATE_REF)
    return meta.uid, meta.leaving, marks, meta.owner_references
