"""Options and results of requests."""

from __future__ import annotations

import msgspec

from sandpool.base.shares import OPERATOR
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import Preconditions, Propagation
from sandpool.model.metadata import Revision


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of a create, an update or a patch."""

    dry_run: bool = False
    validation: FieldValidation = FieldValidation.WARN
    tenant: str = OPERATOR  # the tenant it is charged to; the operator has no limits
    early: bool = False  # the caller gets its response before any client can observe the commit


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of a delete."""

    dry_run: bool = False
    preconditions: Preconditions | None = None
    propagation: Propagation | None = None
    grace: int | None = None


class ListQuery(msgspec.Struct, frozen=True):
    """Selectors, page and revision of a list."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    after: str = ""  # an opaque continue token
    revision: Revision | None = None
    match: str = ""  # resourceVersionMatch: "", Exact or NotOlderThan


class WatchQuery(msgspec.Struct, frozen=True):
    """Selectors and start of a watch."""

    labels: str = ""
    fields: str = ""
    since: Revision | None = None  # None or 0: ADDED events for the current state first
    initial: bool = False  # sendInitialEvents=true: the current state first, then a bookmark that marks its end
    skip_initial: bool = False  # sendInitialEvents=false: only changes from now on, even without `since`
    bookmarks: bool = False


class Written(msgspec.Struct, frozen=True):
    """The stored object, and warnings for the client."""

    record: Record
    warnings: tuple[str, ...] = ()
    created: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """If `finished`, the object is gone and `record` is its last state. Otherwise it has a deletionTimestamp and still exists."""

    record: Record
    finished: bool


class Listed(msgspec.Struct, frozen=True):
    """One page of a list."""

    records: tuple[Record, ...]
    revision: Revision
    after: str = ""
    remaining: int | None = None
