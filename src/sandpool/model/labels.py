"""The label and annotation keys of the contract that we read or write, and which keys belong to the system."""

from __future__ import annotations

from enum import StrEnum

from sandpool.model.names import name_hash

CORE = "agents.x-k8s.io"
EXTENSIONS = "extensions.agents.x-k8s.io"
RESERVED_PREFIXES = (f"{CORE}/", f"{EXTENSIONS}/")

# Labels
SANDBOX_NAME_HASH = f"{CORE}/sandbox-name-hash"
"""On pod, Service and claim of a sandbox: the hash of the sandbox's name. Tracks them and selects the pod."""
SANDBOX_UID = f"{CORE}/sandbox-uid"
"""On the pod of a sandbox: the sandbox's uid. With the hash, which can collide, it selects the pod for the Service."""
ADOPTABLE = f"{CORE}/adoptable"
"""`true` on an object without an owner: the sandbox that expects an object of this name may adopt it."""
WARM_POOL = f"{CORE}/warm-pool-sandbox"
"""On unclaimed members and their pods: the hash of the pool's name."""
TEMPLATE_REF_HASH = f"{CORE}/sandbox-template-ref-hash"
"""On sandboxes and pods made from a template: the hash of its name. The NetworkPolicy selects by it."""
TEMPLATE_HASH = f"{CORE}/sandbox-template-hash"
"""On unclaimed members: the hash of the blueprint that they were made from."""
POD_TEMPLATE_HASH = f"{CORE}/sandbox-pod-template-hash"
"""Deprecated, kept for outside readers: the hash of the pod template alone."""
CREATED_BY = f"{CORE}/created-by"
LAUNCH_TYPE = f"{CORE}/launch-type"
CLAIM_UID = f"{CORE}/claim-uid"

# Annotations
POD_NAME = f"{CORE}/pod-name"
"""On a sandbox: the name of its pod. Readers fall back to the sandbox's own name."""
SANDBOX_NAME = f"{CORE}/sandbox-name"
"""On a claim: the sandbox that was chosen for it. Old objects carry it as a label."""
TEMPLATE_REF = f"{CORE}/sandbox-template-ref"
PROPAGATED_LABELS = f"{CORE}/propagated-labels"
PROPAGATED_ANNOTATIONS = f"{CORE}/propagated-annotations"
POD_SPEC_HASH = f"{CORE}/pod-spec-hash"
"""On a pod that we created: the hash of the pod spec that it was made from. It differs if the sandbox's spec has changed since."""
CLIENT_FIRST_REQUESTED_AT = f"{CORE}/client-first-requested-at"
WEBHOOK_FIRST_OBSERVED_AT = f"{CORE}/webhook-first-observed-at"
CONTROLLER_FIRST_OBSERVED_AT = f"{CORE}/controller-first-observed-at"
CLAIM_FIRST_READY_AT = f"{CORE}/claim-first-ready-at"
TRACE_CONTEXT = "opentelemetry.io/trace-context"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class LaunchType(StrEnum):
    WARM = "warm"
    COLD = "cold"


class Creator(StrEnum):
    GO_CLIENT = "go-client"
    PYTHON_CLIENT = "python-client"
    CONTROLLER = "controller"
    UNKNOWN = "unknown"


def created_by(value: str) -> Creator:
    """The value as a metric label. Anything that is not a known creator becomes `unknown`, because label values must come from a closed set."""
    return _CREATORS.get(value, Creator.UNKNOWN)


_CREATORS: dict[str, Creator] = {creator.value: creator for creator in Creator}


def reserved_label(key: str) -> bool:
    """Whether the key is reserved for the system. Such labels are ignored in a pod template."""
    return key.startswith(RESERVED_PREFIXES)


def reserved_annotation(key: str) -> bool:
    return key.startswith(RESERVED_PREFIXES) or key == TRACE_CONTEXT


def sandbox_selector(name: str) -> str:
    """The value of a sandbox's `status.selector`."""
    return f"{SANDBOX_NAME_HASH}={name_hash(name)}"


def pool_selector(name: str) -> str:
    """The value of a pool's `status.selector`."""
    return f"{WARM_POOL}={name_hash(name)}"
