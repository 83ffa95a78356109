"""Advice for conditions: one sentence for each reason that needs action. Pure."""

from __future__ import annotations

from typing import Any

from sandpool.cli.objects.conditions import condition_list
from sandpool.model.reasons import Reason

Json = dict[str, Any]

_WHY = "`sandpool why {word}/{name} -n {namespace}` shows what the controllers saw and decided"
_WAIT = "`sandpool wait {word}/{name} -n {namespace} --for=condition=Ready` waits for it"
_RECLAIM = "Release it with `sandpool release {name} -n {namespace}` and claim another one"
_CHANGE = "`sandpool get {word}/{name} -n {namespace} -o yaml` shows what it asks for; correct it, or the template"

ADVICE: dict[str, str] = {
    Reason.DEPENDENCIES_NOT_READY: f"{_WAIT}; {_WHY}",
    Reason.SANDBOX_SUSPENDED: "`sandpool resume {word}/{name} -n {namespace}` resumes it",
    Reason.SANDBOX_EXPIRED: "It has expired and what ran in it has ended. Claim another one, with a longer --ttl",
    Reason.POD_SUCCEEDED: "What it ran has ended. Claim another one; a template whose command does not end keeps sandboxes alive",
    Reason.POD_FAILED: "`sandpool logs {word}/{name} -n {namespace}` shows its output before it ended",
    Reason.MULTIPLE_PODS: "Delete the pods that do not belong to it: `sandpool get pods -n {namespace}`",
    Reason.RECONCILER_ERROR: f"It is retried automatically; {_WHY}",
    Reason.POD_OUTDATED: "Suspend and resume it to get a pod from the current template",
    Reason.POD_TERMINATING: "Its pod is still terminating; wait for it",
    Reason.POD_NOT_OWNED: "A pod of its name belongs to somebody else; delete that pod, or rename the sandbox",
    Reason.POD_STATE_UNKNOWN: f"It is checked again automatically; {_WHY}",
    Reason.POD_SCHEDULING_UNKNOWN: "The scheduler has not handled it yet; wait, or check whether a scheduler is running",
    Reason.TEMPLATE_NOT_FOUND: "Create the template, or name another one: `sandpool get templates -n {namespace}` lists the existing ones",
    Reason.WARM_POOL_NOT_FOUND: "Create the pool (`sandpool pool create`), or name another one: `sandpool get pools -n {namespace}`",
    Reason.ADOPTION_CONFLICT: f"Another sandbox is tried automatically; {_WAIT}",
    Reason.SANDBOX_CREATE_PENDING: _WAIT,
    Reason.SANDBOX_MISSING: f"It has no sandbox yet, or no longer has one. {_WAIT}; {_WHY}",
    Reason.SANDBOX_NOT_READY: _WAIT,
    Reason.INVALID_METADATA: _CHANGE,
    Reason.ENV_VARS_INJECTION_REJECTED: "Set `envVarsInjectionPolicy: Allowed` in the template, or leave env out of the claim",
    Reason.VOLUME_CLAIM_TEMPLATES_ERROR: "Set `volumeClaimTemplatesPolicy: Allowed` in the template, or leave the volumes out",
    Reason.CLAIM_EXPIRED: _RECLAIM,
    Reason.CONFIGURATION_TROUBLE: _CHANGE,
    Reason.CONTROLLER_TROUBLE: f"It is retried automatically; {_WHY}",
    Reason.POD_NOT_STARTING: f"The message has the pod's own reason. {_WHY}",
    Reason.MEMBERS_NOT_STARTING: f"The message has the reason of the member's pod. {_WHY}",
    Reason.MEMBERS_NOT_READY: "`sandpool pool rollout status {name} -n {namespace}` waits for it; " + _WHY,
    Reason.REPLENISHING: "`sandpool pool rollout status {name} -n {namespace}` waits for it",
    Reason.ROLLING_OUT: "`sandpool pool rollout status {name} -n {namespace}` waits for it",
    Reason.NOT_PROGRESSING: "Look at the member that the message names: `sandpool describe sandbox/NAME -n {namespace}`",
    Reason.CREATION_FAILED: "Fix what the message names: a quota, a permission or the template",
    Reason.NETWORK_POLICY_PENDING: "The template's NetworkPolicy comes first; `sandpool get netpol -n {namespace}` shows it",
}
"""Reasons that need no action have none."""

UNSCHEDULABLE = "No node has room for it: lower its requests, or add a node"

_IMAGE = (
    "Check the image's name, its registry and the login in imagePullSecrets; changes to the template apply to new pods"
)
_NEVER = "The image is not on the node, and imagePullPolicy Never forbids pulling it: import it (`sandpool image import`), or change the policy"
_CRASH = "The container exits at once: check its command, and its output with `sandpool logs`"
_CONFIG = "The container refers to something that does not exist, such as a Secret, a ConfigMap or a key in one: create it, or correct the template"

OF_PODS: dict[str, str] = {
    "ErrImageNeverPull": _NEVER,
    "InvalidImageName": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "CrashLoopBackOff": _CRASH,
    "CreateContainerConfigError": _CONFIG,
    "Unschedulable": UNSCHEDULABLE,
}
"""Advice for a reason of a pod, which the message of a condition repeats."""
_REPEATING = frozenset(
    {
        Reason.POD_NOT_STARTING,
        Reason.MEMBERS_NOT_STARTING,
        Reason.SANDBOX_MISSING,
        Reason.DEPENDENCIES_NOT_READY,
    }
)
"""Conditions whose message may have it."""


def advice(word: str, namespace: str, name: str, body: Json) -> list[str]:
    """Advice for conditions that need action, each once, in the order of the conditions."""
    found: dict[str, None] = {}
    for condition in condition_list(body):
        sentence = _sentence(condition)
        if sentence:
            found.setdefault(sentence.format(word=word, namespace=namespace, name=name))
    return list(found)


def _sentence(condition: Json) -> str:
    reason = condition.get("reason") or ""
    if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
        return UNSCHEDULABLE if reason == "Unschedulable" else ADVICE[Reason.POD_SCHEDULING_UNKNOWN]
    message = (condition.get("message") or "") if reason in _REPEATING else ""
    known = (sentence for word, sentence in OF_PODS.items() if word in message)
    return next(known, ADVICE.get(reason, ""))
