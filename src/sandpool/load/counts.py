"""Counts what the cluster did for the claims: writes by kind and author, conflicts, not-founds, reconciles. Pure.

They come from the increase of Prometheus counters, or from an audit log. An unknown number is None, and `reasons` says why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.load.audit import AuditedRequest

Labels = tuple[tuple[str, str], ...]
Samples = dict[str, dict[Labels, float]]
"""By family, then by labels in the order of their names."""

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\n])')


def read_samples(page: str, families: Iterable[str]) -> Samples:
    wanted = tuple(families)
    found: Samples = {name: {} for name in wanted}
    for line in page.splitlines():
        if not line.startswith(wanted):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] not in found:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = tuple(sorted((name, _plain(text)) for name, text in _LABEL.findall(match[2] or "")))
        found[match[1]][labels] = value
    return {name: values for name, values in found.items() if values}


def increase(before: Samples, after: Samples, family: str) -> dict[Labels, float] | None:
    """The increase of a counter; None if the page does not have it. After a restart it begins at 0."""
    if family not in after:
        return None
    earlier: Mapping[Labels, float] = before.get(family, {})
    found = {}
    for labels, value in after[family].items():
        change = value - earlier.get(labels, 0.0)
        found[labels] = value if change < 0 else change
    return {labels: change for labels, change in found.items() if change}


def label(labels: Labels, name: str) -> str:
    return next((value for key, value in labels if key == name), "")


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


FAMILIES = (
    "sandpool_client_requests_total",
    "sandpool_reconciles_total",
    "sandpool_apiserver_requests_total",
    "sandpool_store_commit_writes_sum",
    "apiserver_request_total",
    "controller_runtime_reconcile_total",
    "rest_client_requests_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
)
ASIDE = {"leases", "events", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews"}
"""Writes that are not work on claims: shown, but not counted per claim."""
_WRITES = {"create", "patch", "patch_status", "update", "delete", "deletecollection", "post", "put", "apply"}
_CLAIM_CONTROLLERS = {"claim", "sandboxclaim"}


@dataclass(slots=True)
class Counts:
    """`writes` are by component, then by kind such as `patch sandboxes/status`."""

    writes: dict[str, dict[str, int]] = field(default_factory=dict)
    conflicts: int | None = None
    not_found: int | None = None
    reconciles: int | None = None
    stored: int | None = None  # writes of all clients, as the store counts them
    source: str = ""
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def controller_writes(self) -> int | None:
        """What controllers wrote for claims and their refill."""
        if "controllers" not in self.writes:
            return None
        return sum(count for kind, count in self.writes["controllers"].items() if not is_aside(kind))


def is_aside(kind: str) -> bool:
    return kind.split(" ", 1)[-1].split("/", 1)[0] in ASIDE


@dataclass(frozen=True, slots=True)
class Page:
    """One place that serves metrics, before and after the run."""

    source: str
    before: Samples
    after: Samples


def count(pages: Sequence[Page], missing: str = "") -> Counts:
    """`missing` says why there are no pages, if there are none."""
    counts = Counts(reasons={})
    for page in pages:
        _controllers(page, counts)
        _reconciles(page, counts)
        _server(page, counts)
    _tell_missing(counts, missing)
    return counts


def count_audit(requests: Iterable[AuditedRequest], counts: Counts) -> Counts:
    """The same from an audit log, which is more exact because it has the users. Reconciles still come from metrics."""
    writes: dict[str, Counter[str]] = {}
    conflicts = missing = 0
    for request in requests:
        if request.component == "controllers":
            conflicts += request.code == 409
            missing += request.code == 404
        if request.writes and request.code < 400:
            writes.setdefault(request.component, Counter())[request.kind] += 1
    counts.writes = {component: dict(kinds) for component, kinds in writes.items()}
    counts.writes.setdefault("controllers", {})
    counts.conflicts, counts.not_found, counts.source = conflicts, missing, "audit log"
    for name in ("writes", "conflicts", "not_found"):
        counts.reasons.pop(name, None)
    return counts


def _controllers(page: Page, counts: Counts) -> None:
    ours = increase(page.before, page.after, "sandpool_client_requests_total")
    if ours is not None:
        kinds = _kinds(ours, lambda labels: (label(labels, "verb"), label(labels, "resource")), "outcome", {"ok"})
        refused = _by(ours, "outcome")
        _add(counts, page.source, kinds, refused["Conflict"], refused["NotFound"])
        return
    theirs = increase(page.before, page.after, "rest_client_requests_total")
    if theirs is not None and increase(page.before, page.after, "apiserver_request_total") is None:
        done = {code for code in _by(theirs, "code") if code.startswith("2")}
        kinds = _kinds(theirs, lambda labels: (label(labels, "method").lower(), ""), "code", done)
        refused = _by(theirs, "code")
        _add(counts, page.source, kinds, refused["409"], refused["404"])


def _add(counts: Counts, source: str, kinds: dict[str, int], conflicts: int, not_found: int) -> None:
    into = counts.writes.setdefault("controllers", {})
    for kind, number in kinds.items():
        into[kind] = into.get(kind, 0) + number
    counts.conflicts = (counts.conflicts or 0) + conflicts
    counts.not_found = (counts.not_found or 0) + not_found
    counts.source = f"{counts.source}, {source}" if counts.source else source


def _reconciles(page: Page, counts: Counts) -> None:
    for family in ("sandpool_reconciles_total", "controller_runtime_reconcile_total"):
        samples = increase(page.before, page.after, family)
        if samples is not None:
            by = _by(samples, "controller")
            counts.reconciles = (counts.reconciles or 0) + sum(by[name] for name in _CLAIM_CONTROLLERS)


def _server(page: Page, counts: Counts) -> None:
    """Requests as the API server counts them: of all clients, so they are kept apart from the controllers' own counts."""
    ours = increase(page.before, page.after, "sandpool_apiserver_requests_total")
    theirs = increase(page.before, page.after, "apiserver_request_total")
    stored = increase(page.before, page.after, "sandpool_store_commit_writes_sum")
    if stored is not None:
        counts.stored = (counts.stored or 0) + round(sum(stored.values()))
    samples = ours if ours is not None else theirs
    if samples is None:
        return
    done = {code for code in _by(samples, "code") if code.startswith("2")}
    kinds = _kinds(samples, _asked, "code", done)
    component = "over the wire" if ours is not None else "everybody"
    counts.writes.setdefault(component, {}).update(kinds)


def _asked(labels: Labels) -> tuple[str, str]:
    resource, subresource = label(labels, "resource"), label(labels, "subresource")
    return label(labels, "verb").lower(), f"{resource}/{subresource}" if subresource else resource


def _kinds(
    samples: dict[Labels, float], about: Callable[[Labels], tuple[str, str]], by: str, done: set[str]
) -> dict[str, int]:
    found: Counter[str] = Counter()
    for labels, number in samples.items():
        verb, resource = about(labels)
        if verb in _WRITES and label(labels, by) in done:
            found[kind(verb, resource)] += round(number)
    return dict(found)


def kind(verb: str, resource: str) -> str:
    """`patch sandboxes/status`: the RBAC verb, and the resource without its group."""
    plural, slash, subresource = resource.partition("/")
    plural = plural.split(".", 1)[0]
    if verb == "patch_status":
        verb, slash, subresource = "patch", "/", "status"
    verb = {"post": "create", "put": "update", "apply": "patch"}.get(verb, verb)
    return f"{verb} {plural}{slash}{subresource}".strip()


def _by(samples: dict[Labels, float], name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for labels, number in samples.items():
        found[label(labels, name)] += round(number)
    return found


def _tell_missing(counts: Counts, missing: str) -> None:
    why = missing or "its /metrics has no counts of controllers; name theirs with --metrics, or an --audit-log"
    if "controllers" not in counts.writes:
        counts.reasons.update(writes=why, conflicts=why, not_found=why)
    if counts.reconciles is None:
        counts.reasons["reconciles"] = (
            missing or "no metrics page has the reconciles of claims; name one with --metrics"
        )
