"""Matches records against the label and field selectors of a request, decoding only what they need.

Watchers share decoded parts of a record through one bounded cache, so a change costs one partial decode for any number of
watchers. Without selectors nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.recent import Recent, decoded_size
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import BadRequest
from sandpool.model import kinds
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource
from sandpool.model.selectors import FieldSelector, LabelSelector, SelectorError, parse_fields, parse_labels

REMEMBERED = 1024
_REMEMBERED_BYTES = 32 * 1024 * 1024  # of memory
PORTION = 4096  # sum of Matcher.cost before other requests get a turn: some milliseconds


class _LabelsOnly(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct, gc=False):
    metadata: _LabelsOnly


_labelled = msgspec.json.Decoder(_Labelled).decode


class Facts:
    """The labels and the document of one record, decoded when first needed."""

    __slots__ = ("_document", "_labels", "_record")

    def __init__(self, record: Record) -> None:
        self._record = record
        self._labels: dict[str, str] | None = None
        self._document: Document | None = None

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = _labelled(self._record.value).metadata.labels or {}
        return self._labels

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = decode(self._record)
        return self._document


class Memo:
    """A cache of Facts by revision. A revision identifies one record, so entries never become stale."""

    def __init__(self) -> None:
        self._facts: Recent[Revision, Facts] = Recent(REMEMBERED, _REMEMBERED_BYTES)

    def facts(self, record: Record) -> Facts:
        found = self._facts.get(record.revision)
        if found is None:
            found = self._facts.keep(record.revision, Facts(record), decoded_size(record.value))
        return found


class Matcher:
    """The label and field selectors of one request."""

    def __init__(self, resource: Resource[Any], labels: str, fields: str) -> None:
        try:
            self._labels: LabelSelector | None = parse_labels(labels) or None
            self._fields: FieldSelector | None = parse_fields(fields) or None
        except SelectorError as error:
            raise BadRequest(str(error)) from error
        terms = self._fields.terms if self._fields is not None else ()
        requirements = len(self._labels.requirements) if self._labels is not None else 0
        self.terms = 8 + requirements + len(terms)
        self._readers = {term.field: reader_of(resource, term.field) for term in terms}

    @property
    def everything(self) -> bool:
        return self._labels is None and self._fields is None

    def cost(self, record: Record) -> int:
        """The cost of matching a record, roughly in microseconds: every term may be compared, and field selectors decode the whole record."""
        return self.terms + len(record.value) // (64 if self._fields is not None else 1024)

    def matches(self, facts: Facts) -> bool:
        if self._labels is not None and not self._labels.matches(facts.labels):
            return False
        if self._fields is None:
            return True
        document = facts.document
        return self._fields.matches({field: read(document) for field, read in self._readers.items()})


Read = Callable[[Document], str]


def _at(path: str) -> Read:
    steps = path.split(".")

    def read(document: Document) -> str:
        value: Any = document
        for step in steps:
            if not isinstance(value, dict):
                return ""
            value = value.get(step)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def _flag(path: str) -> Read:
    """A boolean that is false when it is absent."""
    read = _at(path)
    return lambda document: read(document) or "false"


def _source(event: Document) -> str:
    return _at("source.component")(event) or _at("reportingComponent")(event)


def _paths(*paths: str) -> dict[str, Read]:
    return {path: _at(path) for path in paths}


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_BY_KIND: dict[Resource[Any], Mapping[str, Read]] = {
    kinds.PODS: {
        **_paths("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        **_paths("status.phase", "status.podIP", "status.nominatedNodeName"),
        "spec.hostNetwork": _flag("spec.hostNetwork"),
    },
    kinds.EVENTS: {
        **_paths(*(f"involvedObject.{part}" for part in _INVOLVED), "reason", "reportingComponent", "type"),
        "source": _source,
    },
    kinds.NODES: {"spec.unschedulable": _flag("spec.unschedulable")},
    kinds.SECRETS: _paths("type"),
    kinds.NAMESPACES: _paths("status.phase"),
    kinds.SERVICES: _paths("spec.clusterIP", "spec.type"),
}


def reader_of(resource: Resource[Any], field: str) -> Read:
    """A function that reads that field of an object of this kind. Raises 400 if field selectors do not support it."""
    own = _BY_KIND.get(resource)
    if field == "metadata.name" or (field == "metadata.namespace" and (own is None or resource.namespaced)):
        return _at(field)
    if own is not None and field in own:
        return own[field]
    if own is None and not strategy_of(resource).custom:
        raise BadRequest(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    raise BadRequest(f"field label not supported: {field}")
