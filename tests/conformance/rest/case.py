"""What a REST case is: one request to a server in a known state. The answer is not here but in answers.yaml.

Text in requests and bodies may hold `{ns}` (the fresh namespace of the case), `{uid}` and `{rv}` (of the first object that
`given` made) and `{newest}` (the resourceVersion after the last step of `given`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.bodies import claim, core, lease, pod, pool, sandbox

JSON = "application/json"
YAML = "application/yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

AGENTS = "/apis/agents.x-k8s.io/v1beta1"
EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1"
SANDBOXES = AGENTS + "/namespaces/{ns}/sandboxes"
TEMPLATES = EXTENSIONS + "/namespaces/{ns}/sandboxtemplates"
POOLS = EXTENSIONS + "/namespaces/{ns}/sandboxwarmpools"
CLAIMS = EXTENSIONS + "/namespaces/{ns}/sandboxclaims"
CORE = "/api/v1/namespaces/{ns}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"

Body = Any
"""A JSON value, or bytes that are sent as they are."""


@dataclass(frozen=True)
class Step:
    """One request that prepares a case and must succeed."""

    request: str  # "POST /path?query"
    body: Body = None
    content_type: str = JSON


@dataclass(frozen=True)
class Case:
    name: str
    request: str
    body: Body = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    given: tuple[Step, ...] = ()
    show: tuple[str, ...] = ()  # dotted paths of a successful answer that are part of it
    anonymous: bool = False  # without the token


SANDBOX = Step(f"POST {SANDBOXES}", sandbox())
POOL = Step(f"POST {POOLS}", pool(replicas=2))
CLAIM = Step(f"POST {CLAIMS}", claim())
POD = Step(f"POST {CORE}/pods", pod())
CONFIG = Step(f"POST {CORE}/configmaps", core("ConfigMap", data={"k": "v"}))
LEASE = Step(f"POST {LEASES}", lease(holderIdentity="one"))


def label(path: str, **labels: str) -> Step:
    return Step(f"PATCH {path}", {"metadata": {"labels": labels}}, MERGE)
