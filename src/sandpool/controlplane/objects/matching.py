"""Whether a record matches the selectors of a request, looking only at what they name.

Watchers share what was decoded of a record through one bounded memo, so a change costs one partial decode however many
watch it. Without selectors nothing is decoded at all.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.fields import reader_of
from sandpool.controlplane.objects.recent import Recent
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import BadRequest
from sandpool.model.field_selectors import FieldSelector, parse_fields
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource
from sandpool.model.selectors import LabelSelector, SelectorError, parse_labels

_REMEMBERED = 1024
_REMEMBERED_BYTES = 8 * 1024 * 1024  # of records; what is decoded of them takes several times as much
PORTION = 4096  # of Matcher.cost that is done before others have a turn: some milliseconds
_MOST_TERMS = 256  # of one selector: each is compared with each object, and nobody else is served meanwhile


class _LabelsOnly(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct, gc=False):
    metadata: _LabelsOnly


_labelled = msgspec.json.Decoder(_Labelled).decode


class Facts:
    """What has been read of one record so far."""

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
    """Facts by revision, the newest thousand. A revision is one record: nothing ever gets stale here."""

    def __init__(self) -> None:
        self._facts: Recent[Revision, Facts] = Recent(_REMEMBERED, _REMEMBERED_BYTES)

    def facts(self, record: Record) -> Facts:
        found = self._facts.get(record.revision)
        if found is None:
            found = self._facts.keep(record.revision, Facts(record), len(record.value))
        return found


class Matcher:
    """Both selectors of one request."""

    def __init__(self, resource: Resource[Any], labels: str, fields: str) -> None:
        try:
            self._labels: LabelSelector | None = parse_labels(labels) or None
            self._fields: FieldSelector | None = parse_fields(fields) or None
        except SelectorError as error:
            raise BadRequest(str(error)) from error
        terms = self._fields.terms if self._fields is not None else ()
        requirements = len(self._labels.requirements) if self._labels is not None else 0
        _check_length("label", requirements)
        _check_length("field", len(terms))
        self.terms = 8 + requirements + len(terms)
        self._readers = {term.field: reader_of(resource, term.field) for term in terms}

    @property
    def everything(self) -> bool:
        return self._labels is None and self._fields is None

    def cost(self, record: Record) -> int:
        """Of looking at a record, in microseconds, more or less: all terms may have to be compared, and fields are found by decoding all of it."""
        return self.terms + len(record.value) // (64 if self._fields is not None else 1024)

    def matches(self, facts: Facts) -> bool:
        if self._labels is not None and not self._labels.matches(facts.labels):
            return False
        if self._fields is None:
            return True
        document = facts.document
        return self._fields.matches({field: read(document) for field, read in self._readers.items()})


def _check_length(kind: str, terms: int) -> None:
    if terms > _MOST_TERMS:
        raise BadRequest(
            f"the {kind} selector has {terms} requirements, at most {_MOST_TERMS} are taken: "
            "use `key in (...)`, which may name any number of values"
        )
