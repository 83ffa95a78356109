"""What a request may ask for besides the object itself."""

from __future__ import annotations

import msgspec

from sandpool.base.shares import OPERATOR
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Preconditions, Propagation
from sandpool.model.metadata import Revision


class WriteOptions(msgspec.Struct, frozen=True):
    dry_run: bool = False
    validation: FieldValidation = FieldValidation.WARN
    tenant: str = OPERATOR  # on whose account it is; only a tenant's shares can be exceeded
    early: bool = False  # whoever asks goes on before anybody can hear of what is stored beside what it asked for


class DeleteOptions(msgspec.Struct, frozen=True):
    dry_run: bool = False
    preconditions: Preconditions | None = None
    propagation: Propagation | None = None
    grace: int | None = None


class ListQuery(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    limit: int = 0
    after: str = ""  # an opaque continue token
    revision: Revision | None = None
    match: str = ""  # resourceVersionMatch: "", Exact or NotOlderThan


class WatchQuery(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    since: Revision | None = None  # None or 0: synthetic ADDED of the present state first
    initial: bool = False  # sendInitialEvents=true: the present state first, then a bookmark that says so
    skip_initial: bool = False  # sendInitialEvents=false: only what changes from now on, also without `since`
    bookmarks: bool = False


class Written(msgspec.Struct, frozen=True):
    record: Record
    warnings: tuple[str, ...] = ()
    created: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """`finished`: it is gone, and `record` is its last state. Otherwise it is marked and still there."""

    record: Record
    finished: bool


class Listed(msgspec.Struct, frozen=True):
    records: tuple[Record, ...]
    revision: Revision
    after: str = ""
    remaining: int | None = None
