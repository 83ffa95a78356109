"""Computes the new document of a stored object from a PUT or a patch. Pure.

The order is that of a kube-apiserver: first, fields that this request may not change are restored; then admission checks
the result (and restores metadata that only the server sets); then generation is increased.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.admission.admit import Admitted, FieldValidation, admit
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, Malformed, headed, metadata_of, revision_of, same
from sandpool.controlplane.objects.prepare import check_names, settle_owners
from sandpool.controlplane.objects.strategy import Strategy, strategy_of
from sandpool.controlplane.store.record import Record
from sandpool.model import kinds
from sandpool.model.resource import Resource

_NOT_WANTED = ("metadata", "status")


class Change(msgspec.Struct, frozen=True):
    """One requested change. A msgspec struct, because every write creates one."""

    namespace: str
    name: str
    record: Record
    old: Document
    new: Document
    subresource: str
    patched: bool = False

    def admitted(self, resource: Resource[Any], validation: FieldValidation) -> tuple[Document, tuple[str, ...]]:
        """The document to store, with its own metadata dict and still the old resourceVersion, and warnings."""
        strategy = strategy_of(resource)
        part = "" if self.subresource == "scale" else self.subresource  # a Scale changes the object itself
        try:
            document = self._asked(resource, strategy, part)
        except Malformed:
            admit(resource, self.new, self.old, validation=validation, patched=self.patched)
            raise
        outcome = self._admit(resource, strategy, part, document, validation)
        before = self.old["metadata"]
        metadata = dict(outcome.body["metadata"])
        document = {**outcome.body, "metadata": metadata}
        warnings = outcome.warnings
        owners = metadata.get("ownerReferences")
        if owners and len(owners) > 1:
            warnings += settle_owners(metadata, patched=self.patched)
        metadata["resourceVersion"] = before["resourceVersion"]
        if not part and strategy.generation and wanted_differs(self.old, document):
            metadata["generation"] = int(before.get("generation", 0)) + 1
        return document, warnings

    def _asked(self, resource: Resource[Any], strategy: Strategy, part: str) -> Document:
        """The requested document, with the old value of everything that this request may not change."""
        metadata = metadata_of(self.new)
        if metadata.get("name") != self.name or metadata.get("namespace") != self.namespace:
            check_names(resource, metadata, self.namespace, self.name)
        if metadata.get("resourceVersion") != self.old["metadata"]["resourceVersion"]:
            self._check_revision(resource, strategy, metadata)
        if resource.namespaced and "namespace" not in metadata:
            metadata = {**metadata, "namespace": self.namespace}
        if part == "status":
            return {**self.old, "metadata": metadata, "status": self.new.get("status")}
        if part == "finalize":
            finalizers = _wanted_finalizers(self.new.get("spec"))
            return {**self.old, "spec": {"finalizers": finalizers} if finalizers else {}}
        if self.patched and metadata is self.new["metadata"]:
            return self.new
        return headed(resource.api_version, resource.kind, metadata, self.new)

    def _check_revision(self, resource: Resource[Any], strategy: Strategy, metadata: Document) -> None:
        asked = revision_of(metadata)
        if not asked:
            if not strategy.unconditional:
                raise refusals.revision_required(resource, self.name)
        elif asked != revision_of(self.old["metadata"]):
            raise refusals.conflict(resource, self.name)

    def _admit(
        self, resource: Resource[Any], strategy: Strategy, part: str, document: Document, validation: FieldValidation
    ) -> Admitted:
        if part == "finalize":
            return Admitted(document)
        outcome = admit(resource, document, self.old, subresource=part, validation=validation, patched=self.patched)
        if part != "status" or strategy.custom or document["metadata"] is self.old["metadata"]:
            return outcome
        # For Kubernetes' own kinds, a write of the status may also change labels and annotations.
        labelled = admit(resource, {**self.old, "metadata": document["metadata"]}, self.old, validation=validation)
        metadata = labelled.body["metadata"]
        if resource == kinds.PODS:
            metadata = _with(metadata, self.old["metadata"], "ownerReferences")
        return Admitted({**outcome.body, "metadata": metadata}, outcome.warnings)


def _wanted_finalizers(spec: Any) -> list[str]:
    """The finalizers in a request to the finalize subresource. Admission does not check them, so their types are checked here."""
    if spec is not None and not isinstance(spec, dict):
        raise Malformed("spec: must be an object")
    finalizers = (spec or {}).get("finalizers") or []
    if not isinstance(finalizers, list) or not all(isinstance(name, str) and name for name in finalizers):
        raise Malformed("spec.finalizers: must be a list of names")
    return finalizers


def _with(document: Document, source: Document, field: str) -> Document:
    rest = {name: value for name, value in document.items() if name != field}
    return {**rest, field: source[field]} if field in source else rest


def wanted_differs(old: Document, new: Document) -> bool:
    """Whether anything except metadata and status differs, which increases generation."""
    for field, value in new.items():
        before = old.get(field)
        if value is not before and field not in _NOT_WANTED and not same(value, before):
            return True
    return old.keys() != new.keys() and any(field not in new for field in old if field not in _NOT_WANTED)


def differs(old: Document, new: Document) -> bool:
    """Whether anything would change in the store. `new` carries the revision of `old`."""
    if old.keys() != new.keys():
        return True
    for field, value in new.items():
        before = old[field]
        if value is not before and field != "metadata" and not same(value, before):
            return True
    # Metadata comes last, because it is always a new dict, and usually an equal one.
    return not same(new.get("metadata"), old.get("metadata"))
