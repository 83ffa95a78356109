"""Every Event that we emit: its reason, the kind it is about, its severity, what it means and what to do next.

The list is closed: docs/reference/events.md shows it, and code that emits an Event must use a member of it.
"""

from __future__ import annotations

from enum import StrEnum

NOTHING = "Nothing."


class EventReason(StrEnum):
    grave: bool
    about: tuple[str, ...]
    meaning: str
    next_step: str

    def __new__(cls, value: str, type_: str, about: str, meaning: str, next_step: str) -> EventReason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.grave = type_ == "Warning"
        member.about = tuple(about.split(", "))
        member.meaning = meaning
        member.next_step = next_step
        return member

    # A sandbox
    MULTIPLE_PODS = (
        "MultiplePods",
        "Warning",
        "Sandbox",
        "Several pods belong to the sandbox and none of them has its name. It is not Ready, and no further pod is made.",
        "Delete all of its pods but one.",
    )
    POD_FAILED = (
        "PodFailed",
        "Warning",
        "Sandbox",
        "The pod ended with an error, or its node evicted it. A pod that has ended is kept, so that it can be looked at.",
        "Read its logs; then delete the pod, and the sandbox gets a new one.",
    )
    POD_OUTDATED = (
        "PodOutdated",
        "Normal",
        "Sandbox",
        "spec.podTemplate.spec was changed, and the running pod was made from what it said before.",
        "Delete the pod, or suspend and resume the sandbox, when its work may be interrupted.",
    )
    CONFIGURATION_TROUBLE = (
        "ConfigurationTrouble",
        "Warning",
        "Sandbox, SandboxClaim",
        "Something that was asked for cannot be done until somebody changes something. It is not retried by the clock.",
        "Do what the message says: it names the object and the field.",
    )
    CONTROLLER_TROUBLE = (
        "ControllerTrouble",
        "Warning",
        "Sandbox, SandboxClaim",
        "A read or a write on its behalf keeps failing, and is tried again.",
        "Look at the API server if it lasts; the message quotes its answer.",
    )
    STATUS_REFUSED = (
        "StatusRefused",
        "Warning",
        "Sandbox, SandboxWarmPool, SandboxClaim",
        "The API server refuses to let the controller write the status, which goes on showing what was before. It is tried again once a "
        "minute.",
        "Do what the message says: mostly a permission is missing; compare the roles with those that `sandpool install --dry-run` prints.",
    )
    SANDBOX_SUSPENDED = (
        "SandboxSuspended",
        "Normal",
        "Sandbox",
        "The pod is gone; persistent volumes and the Service stay, all other files are lost.",
        "Set spec.operatingMode to Running to bring it back.",
    )
    SANDBOX_RESUMED = ("SandboxResumed", "Normal", "Sandbox", "The sandbox is meant to run again.", NOTHING)
    SANDBOX_EXPIRED = (
        "SandboxExpired",
        "Normal",
        "Sandbox",
        "The sandbox reached spec.shutdownTime: its pod and Service are deleted, its storage stays.",
        "A later spec.shutdownTime brings a retained sandbox back.",
    )

    # A template
    NETWORK_POLICY_CONFLICT = (
        "NetworkPolicyConflict",
        "Warning",
        "SandboxTemplate",
        "The NetworkPolicy that the template needs cannot be made. No sandbox is made from it meanwhile.",
        "Do what the message says: it names the object that is in the way.",
    )

    # Pools and claims that wait for somebody to act
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "Warning",
        "SandboxWarmPool, SandboxClaim",
        "The template that is referred to does not exist in this namespace.",
        "Create it, or refer to another one; it goes on by itself then.",
    )
    WARM_POOL_NOT_FOUND = (
        "WarmPoolNotFound",
        "Warning",
        "SandboxClaim",
        "The pool that the claim refers to does not exist in this namespace.",
        "Create it, or make the claim anew with another spec.warmPoolRef.",
    )
    INVALID_METADATA = (
        "InvalidMetadata",
        "Warning",
        "SandboxClaim",
        "spec.additionalPodMetadata asks for a label or annotation that is not allowed.",
        "Change the claim: the message names the key.",
    )
    ENV_VARS_INJECTION_REJECTED = (
        "EnvVarsInjectionRejected",
        "Warning",
        "SandboxClaim",
        "The template does not let claims set these variables.",
        "Change spec.env of the claim, or envVarsInjectionPolicy of the template.",
    )
    VOLUME_CLAIM_TEMPLATES_ERROR = (
        "VolumeClaimTemplatesError",
        "Warning",
        "SandboxClaim",
        "The template does not let claims add this storage, or a name is missing or used twice.",
        "Change spec.volumeClaimTemplates of the claim, or the policy of the template.",
    )
    RECONCILER_ERROR = (
        "ReconcilerError",
        "Warning",
        "SandboxClaim",
        "The claim cannot be served yet: something refused what it needs, or an object of its name is in the way.",
        "Do what the message says; it is tried again when something changes.",
    )

    # A pool
    WARM_POOL_NOT_PROGRESSING = (
        "WarmPoolNotProgressing",
        "Warning",
        "SandboxWarmPool",
        "Members do not become ready, or cannot be made; the message names one of them and why.",
        "Look at that member and its pod; mend the template, or make room on the nodes.",
    )
    WARM_POOL_PROGRESSING = (
        "WarmPoolProgressing",
        "Normal",
        "SandboxWarmPool",
        "Members become ready again.",
        NOTHING,
    )

    # A claim
    SANDBOX_ADOPTED = (
        "SandboxAdopted",
        "Normal",
        "SandboxClaim",
        "The claim got a warm sandbox of its pool.",
        NOTHING,
    )
    SANDBOX_PROVISIONED = (
        "SandboxProvisioned",
        "Normal",
        "SandboxClaim",
        "No warm sandbox could serve the claim, so one is started for it.",
        "Give the pool more replicas if that happens often.",
    )
    CLAIM_EXPIRED = (
        "ClaimExpired",
        "Normal",
        "SandboxClaim",
        "The claim reached the end of its life, and its sandbox goes by its policy.",
        NOTHING,
    )


def table() -> str:
    """All Events as a Markdown table, in the order in which they are declared."""
    rows = [
        f"| `{one}` | {'Warning' if one.grave else 'Normal'} | {', '.join(one.about)} | {one.meaning} | {one.next_step} |"
        for one in EventReason
    ]
    return "\n".join(["| Reason | Type | About | Meaning | What to do |", "|---|---|---|---|---|", *rows]) + "\n"
