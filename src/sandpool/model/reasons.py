"""Every reason that a condition of ours can have. The list is closed: docs/reference/conditions.md explains each of them.

Reasons copied from pods (`PodScheduled` mirrors what the scheduler says) are the one exception.
"""

from __future__ import annotations

from enum import StrEnum


class Type(StrEnum):
    """The conditions that we write."""

    READY = "Ready"
    SUSPENDED = "Suspended"
    POD_SCHEDULED = "PodScheduled"
    FINISHED = "Finished"
    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    POD_UP_TO_DATE = "PodUpToDate"


class Reason(StrEnum):
    """A reason, the conditions that use it, and what it means."""

    conditions: tuple[str, ...]
    meaning: str

    def __new__(cls, value: str, conditions: str, meaning: str) -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.conditions = tuple(conditions.split(", "))
        member.meaning = meaning
        return member

    # A sandbox, and a claim that forwards its sandbox's Ready
    DEPENDENCIES_READY = (
        "DependenciesReady",
        "Sandbox Ready, Claim Ready",
        "The pod is ready and has an address; so is the Service, where one is wanted.",
    )
    DEPENDENCIES_NOT_READY = (
        "DependenciesNotReady",
        "Sandbox Ready, Claim Ready",
        "The pod, its address or the Service is still missing.",
    )
    SANDBOX_SUSPENDED = (
        "SandboxSuspended",
        "Sandbox Ready, Claim Ready",
        "The sandbox is suspended, or about to be.",
    )
    SANDBOX_EXPIRED = (
        "SandboxExpired",
        "Sandbox Ready, Claim Ready",
        "The sandbox reached its shutdown time.",
    )
    POD_SUCCEEDED = (
        "PodSucceeded",
        "Sandbox Ready, Sandbox Finished, Claim Ready, Claim Finished",
        "The pod ended on its own, without an error.",
    )
    POD_FAILED = (
        "PodFailed",
        "Sandbox Ready, Sandbox Finished, Claim Ready, Claim Finished",
        "The pod ended with an error.",
    )
    MULTIPLE_PODS = (
        "MultiplePods",
        "Sandbox Ready, Claim Ready",
        "Several pods belong to the sandbox and none is clearly the one.",
    )
    RECONCILER_ERROR = (
        "ReconcilerError",
        "Sandbox Ready, Claim Ready",
        "Something else went wrong and is tried again; the message says what.",
    )
    POD_OUTDATED = (
        "PodOutdated",
        "Sandbox PodUpToDate",
        "The pod was made before the pod spec of the sandbox changed; the change reaches the next pod.",
    )
    NOT_SUSPENDED = ("NotSuspended", "Sandbox Suspended", "The sandbox is meant to run.")
    POD_TERMINATED = ("PodTerminated", "Sandbox Suspended", "The pod is gone: the suspension is complete.")
    POD_TERMINATING = ("PodTerminating", "Sandbox Suspended", "The pod is still going away.")
    POD_NOT_OWNED = (
        "PodNotOwned",
        "Sandbox Suspended",
        "A pod of this name belongs to somebody else and is left alone.",
    )
    POD_STATE_UNKNOWN = ("PodStateUnknown", "Sandbox Suspended", "It could not be found out whether the pod is there.")
    POD_SCHEDULED = (
        "PodScheduled",
        "Sandbox PodScheduled",
        "The pod has a node, and the scheduler gave no reason of its own.",
    )
    POD_SCHEDULING_UNKNOWN = (
        "PodSchedulingUnknown",
        "Sandbox PodScheduled",
        "The scheduler has not reported about the pod.",
    )

    # A claim
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "Claim Ready, Pool Ready, Pool Progressing",
        "The template does not exist in this namespace.",
    )
    WARM_POOL_NOT_FOUND = ("WarmPoolNotFound", "Claim Ready", "The pool does not exist in this namespace.")
    ADOPTION_CONFLICT = (
        "AdoptionConflict",
        "Claim Ready",
        "Another claim took the chosen sandbox; the next one is tried.",
    )
    SANDBOX_CREATE_PENDING = (
        "SandboxCreatePending",
        "Claim Ready",
        "The sandbox was created a moment ago and is not visible yet.",
    )
    SANDBOX_MISSING = ("SandboxMissing", "Claim Ready", "The claim has no sandbox.")
    SANDBOX_NOT_READY = ("SandboxNotReady", "Claim Ready", "The sandbox has not reported anything yet.")
    INVALID_METADATA = (
        "InvalidMetadata",
        "Claim Ready",
        "additionalPodMetadata asks for a label or annotation that is not allowed. Final until the claim changes.",
    )
    ENV_VARS_INJECTION_REJECTED = (
        "EnvVarsInjectionRejected",
        "Claim Ready",
        "The template does not let claims set these variables. Final until the claim or the template changes.",
    )
    VOLUME_CLAIM_TEMPLATES_ERROR = (
        "VolumeClaimTemplatesError",
        "Claim Ready",
        "The template does not let claims add this storage, or a name is missing or used twice. "
        "Final until the claim or the template changes.",
    )
    CLAIM_EXPIRED = ("ClaimExpired", "Claim Ready", "The claim reached the end of its life. Final.")
    AS_EXPECTED = ("AsExpected", "Claim Healthy", "Nothing is wrong with the way the claim is kept.")
    CONFIGURATION_TROUBLE = (
        "ConfigurationTrouble",
        "Sandbox Healthy, Claim Healthy",
        "It is served, but what it or its template now asks for cannot be done.",
    )
    CONTROLLER_TROUBLE = (
        "ControllerTrouble",
        "Sandbox Healthy, Claim Healthy",
        "It is served, but a write or a read on its behalf keeps failing.",
    )
    POD_NOT_STARTING = (
        "PodNotStarting",
        "Sandbox Healthy, Claim Healthy",
        "A container cannot start or keeps crashing, or no node takes the pod. The message has the pod's own reason, "
        "such as `ImagePullBackOff`, `CrashLoopBackOff` or `Unschedulable`.",
    )

    # A pool
    MEMBERS_READY = ("MembersReady", "Pool Ready", "All members that the pool should have can be claimed.")
    MEMBERS_NOT_READY = ("MembersNotReady", "Pool Ready", "Fewer members than wanted can be claimed at once.")
    UP_TO_DATE = ("UpToDate", "Pool Progressing", "Nothing is left to do.")
    REPLENISHING = ("Replenishing", "Pool Progressing", "Members are being made.")
    ROLLING_OUT = ("RollingOut", "Pool Progressing", "Members of an older template are being replaced.")
    NOT_PROGRESSING = (
        "NotProgressing",
        "Pool Progressing",
        "New members do not become ready; the message names one of them and why.",
    )
    MEMBERS_NOT_STARTING = (
        "MembersNotStarting",
        "Pool Healthy",
        "A member cannot start; the message names it and has its pod's own reason. It is tried again by itself.",
    )
    CREATION_FAILED = (
        "CreationFailed",
        "Pool Progressing",
        "The API server does not accept new members; the message says why.",
    )
    NETWORK_POLICY_PENDING = (
        "NetworkPolicyPending",
        "Pool Progressing",
        "No member is made before the NetworkPolicy of the template exists.",
    )


TERMINAL_FOR_CLIENTS = frozenset(
    {
        Reason.INVALID_METADATA,
        Reason.ENV_VARS_INJECTION_REJECTED,
        Reason.VOLUME_CLAIM_TEMPLATES_ERROR,
        Reason.CLAIM_EXPIRED,
        Reason.SANDBOX_EXPIRED,
    }
)
"""Clients stop waiting when Ready has one of these reasons, so a claim that can still become ready must never have one."""


def table() -> str:
    """All reasons as a Markdown table, in the order in which they are declared."""
    rows = [f"| `{reason}` | {', '.join(reason.conditions)} | {reason.meaning} |" for reason in Reason]
    return "\n".join(["| Reason | Condition | Meaning |", "|---|---|---|", *rows]) + "\n"
