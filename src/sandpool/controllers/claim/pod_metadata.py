"""Labels and annotations that a claim adds to its pod: which are allowed, and how they merge with the template's. Pure.

Labels are allowed by domain, because network policies and services select by them; annotations are free except for the domains of
Kubernetes and of this system. Nothing may change what the template sets. Terminal carries the condition.

All of it is looked at in each reconcile of the claim and copied to its sandbox and its pod, so it is bounded, and so is what is said about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.names import label_value, qualified_name
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import PodMetadata

USER_DOMAINS = ("sandbox.users.io",)
"""Domains of the labels that claims may add by default."""
SYSTEM_DOMAINS = ("kubernetes.io", "k8s.io", labels.CORE)
ROUTER = ("app", "sandbox-router")
"""Pods with this label may reach every sandbox behind the built-in network policy."""
FIELD = "spec.additionalPodMetadata"
MOST = 1024
"""Labels and annotations of one claim."""
MOST_BYTES = 256 * 1024
"""Of all of them. No pod may have more annotations."""
_MOST_PROBLEMS = 16  # things that are wrong; the next are told when these are right
_SHOWN = 320  # characters of a key or a value: no valid key has more


def check(additional: PodMetadata | None, domains: Sequence[str] = USER_DOMAINS) -> None:
    """Raises Terminal with everything that is wrong, or the first part of it if there is very much."""
    if additional is None:
        return
    if too_much := _too_much(additional):
        raise Terminal(Reason.INVALID_METADATA, too_much)
    wrong = chain(_wrong_labels(additional.labels, domains), _wrong_annotations(additional.annotations))
    problems = list(islice(wrong, _MOST_PROBLEMS + 1))
    if problems:
        more = ("and more",) if len(problems) > _MOST_PROBLEMS else ()
        raise Terminal(Reason.INVALID_METADATA, "; ".join([*problems[:_MOST_PROBLEMS], *more]))


def _too_much(additional: PodMetadata) -> str:
    both = (additional.labels, additional.annotations)
    if (number := sum(map(len, both))) > MOST:
        return f"{FIELD} has {number} labels and annotations, at most {MOST} are taken"
    size = sum(len(key) + len(value) for each in both for key, value in each.items())
    return f"{FIELD} takes {size} characters, at most {MOST_BYTES} are taken" if size > MOST_BYTES else ""


def merge(base: PodMetadata, additional: PodMetadata | None) -> PodMetadata:
    """The template's metadata with the claim's, which may repeat but not change it."""
    if additional is None:
        return base
    for field, ours, theirs in (
        ("labels", base.labels, additional.labels),
        ("annotations", base.annotations, additional.annotations),
    ):
        for key, value in sorted(theirs.items()):
            if ours.get(key, value) != value:
                raise changes_template(field, key, value, ours[key])
    return PodMetadata(
        labels={**base.labels, **additional.labels}, annotations={**base.annotations, **additional.annotations}
    )


def changes_template(field: str, key: str, value: str, ours: str) -> Terminal:
    return Terminal(
        Reason.INVALID_METADATA,
        f'{FIELD}.{field}["{key}"] is {value[:_SHOWN]!r} but the template says {ours[:_SHOWN]!r}: '
        "leave it out or give it the template's value",
    )


def allowed_label(key: str, domains: Sequence[str] = USER_DOMAINS) -> bool:
    """Whether a claim may set this label."""
    return _within(_domain(key), domains)


def allowed_annotation(key: str) -> bool:
    return key == labels.SAFE_TO_EVICT or not _within(_domain(key), SYSTEM_DOMAINS)


def _wrong_labels(wanted: Mapping[str, str], domains: Sequence[str]) -> Iterator[str]:
    for key, value in sorted(wanted.items()):
        where = f'{FIELD}.labels["{key[:_SHOWN]}"]'
        if (key.lower(), value.lower()) == ROUTER:
            yield f"{where}: {value!r} would let the sandbox pose as the router; choose another label"
            continue
        if bad := qualified_name(key):
            yield f"{where}: {bad[0]}"
            continue
        domain = _domain(key)
        if not domain:
            yield f"{where}: the key needs a domain, for example {domains[0]}/{key[:_SHOWN]}"
        elif not _within(domain, domains):
            yield f"{where}: the domain {domain} is not allowed; use {' or '.join(domains)}"
        if bad := label_value(value):
            yield f"{where}: the value {bad[0]}"


def _wrong_annotations(wanted: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(wanted):
        where = f'{FIELD}.annotations["{key[:_SHOWN]}"]'
        if bad := qualified_name(key):
            yield f"{where}: {bad[0]}"
        elif not allowed_annotation(key):
            yield f"{where}: the domain {_domain(key)} belongs to the system; use another"


def _domain(key: str) -> str:
    domain, slash, _ = key.partition("/")
    return domain.lower() if slash else ""


def _within(domain: str, domains: Sequence[str]) -> bool:
    return any(domain == one or domain.endswith(f".{one}") for one in domains)
