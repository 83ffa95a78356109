"""Labels and annotations that a claim wants on its pod: which it may have, and what they make of the blueprint's own.

Labels are allowed by domain, because network policies and services select by them; annotations are free except where
Kubernetes and this system keep theirs. Nothing may change what the blueprint says. Terminal carries the condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.names import label_value, qualified_name
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import PodMetadata

USER_DOMAINS = ("sandbox.users.io",)
"""Where claims may take labels from, unless configured otherwise."""
SYSTEM_DOMAINS = ("kubernetes.io", "k8s.io", labels.CORE)
ROUTER = ("app", "sandbox-router")
"""Pods with this label may reach every sandbox behind the built-in network policy."""
FIELD = "spec.additionalPodMetadata"


def check(additional: PodMetadata | None, domains: Sequence[str] = USER_DOMAINS) -> None:
    """Raises Terminal that tells everything wrong at once."""
    if additional is None:
        return
    wrong = [*_wrong_labels(additional.labels, domains), *_wrong_annotations(additional.annotations)]
    if wrong:
        raise Terminal(Reason.INVALID_METADATA, "; ".join(wrong))


def merge(base: PodMetadata, additional: PodMetadata | None) -> PodMetadata:
    """The blueprint's metadata and the claim's, which may repeat but not change it."""
    if additional is None:
        return base
    for field, ours, theirs in (
        ("labels", base.labels, additional.labels),
        ("annotations", base.annotations, additional.annotations),
    ):
        for key, value in sorted(theirs.items()):
            if ours.get(key, value) != value:
                raise Terminal(
                    Reason.INVALID_METADATA,
                    f'{FIELD}.{field}["{key}"] is {value!r} but the template says {ours[key]!r}: '
                    "leave it out or give it the template's value",
                )
    return PodMetadata(
        labels={**base.labels, **additional.labels}, annotations={**base.annotations, **additional.annotations}
    )


def allowed_label(key: str, domains: Sequence[str] = USER_DOMAINS) -> bool:
    """Whether a claim can have brought it."""
    return _within(_domain(key), domains)


def allowed_annotation(key: str) -> bool:
    return key == labels.SAFE_TO_EVICT or not _within(_domain(key), SYSTEM_DOMAINS)


def _wrong_labels(wanted: Mapping[str, str], domains: Sequence[str]) -> Iterator[str]:
    for key, value in sorted(wanted.items()):
        where = f'{FIELD}.labels["{key}"]'
        if (key.lower(), value.lower()) == ROUTER:
            yield f"{where}: {value!r} would let the sandbox pose as the router; choose another label"
            continue
        if bad := qualified_name(key):
            yield f"{where}: {bad[0]}"
            continue
        domain = _domain(key)
        if not domain:
            yield f"{where}: the key needs a domain, for example {domains[0]}/{key}"
        elif not _within(domain, domains):
            yield f"{where}: the domain {domain} is not allowed; use {' or '.join(domains)}"
        if bad := label_value(value):
            yield f"{where}: the value {bad[0]}"


def _wrong_annotations(wanted: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(wanted):
        where = f'{FIELD}.annotations["{key}"]'
        if bad := qualified_name(key):
            yield f"{where}: {bad[0]}"
        elif not allowed_annotation(key):
            yield f"{where}: the domain {_domain(key)} belongs to the system; use another"


def _domain(key: str) -> str:
    domain, slash, _ = key.partition("/")
    return domain.lower() if slash else ""


def _within(domain: str, domains: Sequence[str]) -> bool:
    return any(domain == one or domain.endswith(f".{one}") for one in domains)
