"""What to do about a condition: one sentence for each reason that calls for something. Pure."""

from __future__ import annotations

from typing import Any

from sandpool.cli.objects.waiting import condition_list
from sandpool.model.reasons import Reason

Json = dict[str, Any]

_WHY = "`sandpool why {word}/{name} -n {namespace}` tells what the controllers saw and decided"
_WAIT = "`sandpool wait {word}/{name} -n {namespace} --for=condition=Ready` waits for it"
_RECLAIM = "Release it with `sandpool release {name} -n {namespace}` and claim another one"
_CHANGE = "`sandpool get {word}/{name} -n {namespace} -o yaml` shows what it asks for; correct it, or the template"

ADVICE: dict[str, str] = {
    Reason.DEPENDENCIES_NOT_READY: f"{_WAIT}; {_WHY}",
    Reason.SANDBOX_SUSPENDED: "`sandpool resume {word}/{name} -n {namespace}` brings it back",
    Reason.SANDBOX_EXPIRED: "Its time is over and what ran in it has ended. Claim another one, with a longer --ttl",
    Reason.POD_SUCCEEDED: "What it ran has ended. Claim another one; a template whose command does not end keeps sandboxes alive",
    Reason.POD_FAILED: "`sandpool logs {word}/{name} -n {namespace}` shows what it said before it ended",
    Reason.MULTIPLE_PODS: "Delete the pods that do not belong to it: `sandpool get pods -n {namespace}`",
    Reason.RECONCILER_ERROR: f"It is tried again by itself; {_WHY}",
    Reason.POD_OUTDATED: "Suspend and resume it to get a pod of the present template",
    Reason.POD_TERMINATING: "Its pod is still going away; wait for it",
    Reason.POD_NOT_OWNED: "A pod of its name belongs to somebody else; delete that pod, or name the sandbox otherwise",
    Reason.POD_STATE_UNKNOWN: f"It is looked at again by itself; {_WHY}",
    Reason.POD_SCHEDULING_UNKNOWN: "The scheduler has not looked at it yet; wait, or look whether one runs",
    Reason.TEMPLATE_NOT_FOUND: "Create the template, or name another one: `sandpool get templates -n {namespace}` lists those there are",
    Reason.WARM_POOL_NOT_FOUND: "Create the pool (`sandpool pool create`), or name another one: `sandpool get pools -n {namespace}`",
    Reason.ADOPTION_CONFLICT: f"Another sandbox is tried by itself; {_WAIT}",
    Reason.SANDBOX_CREATE_PENDING: _WAIT,
    Reason.SANDBOX_MISSING: f"It has no sandbox yet, or not any more. {_WAIT}; {_WHY}",
    Reason.SANDBOX_NOT_READY: _WAIT,
    Reason.INVALID_METADATA: _CHANGE,
    Reason.ENV_VARS_INJECTION_REJECTED: "Set `envVarsInjectionPolicy: Allowed` in the template, or leave env out of the claim",
    Reason.VOLUME_CLAIM_TEMPLATES_ERROR: "Set `volumeClaimTemplatesPolicy: Allowed` in the template, or leave the volumes out",
    Reason.CLAIM_EXPIRED: _RECLAIM,
    Reason.CONFIGURATION_TROUBLE: _CHANGE,
    Reason.CONTROLLER_TROUBLE: f"It is tried again by itself; {_WHY}",
    Reason.POD_NOT_STARTING: f"The message has the pod's own reason. {_WHY}",
    Reason.MEMBERS_NOT_STARTING: f"The message has the reason of the member's pod. {_WHY}",
    Reason.MEMBERS_NOT_READY: "`sandpool pool rollout status {name} -n {namespace}` waits for it; " + _WHY,
    Reason.REPLENISHING: "`sandpool pool rollout status {name} -n {namespace}` waits for it",
    Reason.ROLLING_OUT: "`sandpool pool rollout status {name} -n {namespace}` waits for it",
    Reason.NOT_PROGRESSING: "Look at the member that the message names: `sandpool describe sandbox/NAME -n {namespace}`",
    Reason.CREATION_FAILED: "Correct what the message says: a quota, a permission or the template",
    Reason.NETWORK_POLICY_PENDING: "The template's NetworkPolicy comes first; `sandpool get netpol -n {namespace}` shows it",
}
"""Reasons that are as they should be have none."""

UNSCHEDULABLE = "No node has room for it: make the requests smaller, or add a node"

_IMAGE = "Look at the image's name, its registry and the login in imagePullSecrets; what you correct in the template reaches the next pods"
_NEVER = "The image is not on the node, and imagePullPolicy Never forbids to pull it: import it (`sandpool image import`), or change the policy"
_CRASH = "What the container runs ends at once: look at its command, and at what it said with `sandpool logs`"
_CONFIG = "The container refers to something that is not there, such as a Secret, a ConfigMap or a key in one: create it, or correct the template"

OF_PODS: dict[str, str] = {
    "ErrImageNeverPull": _NEVER,
    "InvalidImageName": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "CrashLoopBackOff": _CRASH,
    "CreateContainerConfigError": _CONFIG,
    "Unschedulable": UNSCHEDULABLE,
}
"""What to do about a reason of a pod, which the message of a condition repeats."""
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
    """Sentences for what is not as it should be, each once, in the order of the conditions."""
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
    told = (condition.get("message") or "") if reason in _REPEATING else ""
    known = (sentence for word, sentence in OF_PODS.items() if word in told)
    return next(known, ADVICE.get(reason, ""))
