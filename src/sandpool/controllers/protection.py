"""Whether the walls stand: no sandbox is made from a template before the NetworkPolicy that the template asks for exists."""

from __future__ import annotations

from sandpool.controllers.template.policy import marked, owned, policy_name
from sandpool.loop.cache import Cache
from sandpool.model.core import NetworkPolicy
from sandpool.model.labels import TEMPLATE_REF, TEMPLATE_REF_HASH
from sandpool.model.metadata import Key
from sandpool.model.template import SandboxTemplate


def missing_policy(template: SandboxTemplate, policies: Cache[NetworkPolicy]) -> str | None:
    """What is to be waited for, as a sentence for people; None if nothing is. A foreign policy of that name protects nobody."""
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
    """The NetworkPolicy that protects what is made from the template: whoever waits for it watches this key."""
    return Key(template.metadata.namespace, policy_name(template.metadata.name))


def policy_facts(policy: NetworkPolicy) -> object:
    """What of a policy `missing_policy` reads: nothing of it changed, nobody need look again."""
    meta = policy.metadata
    marks = meta.labels.get(TEMPLATE_REF_HASH), meta.annotations.get(TEMPLATE_REF)
    return meta.uid, meta.leaving, marks, meta.owner_references
