"""Lists: a consistent snapshot, whole or in pages that all show the same revision.

A continue token holds the revision and the last key of the previous page. When that revision is compacted, the
error carries a token that continues with the current state instead (revision -1), as in Kubernetes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import msgspec

from sandpool.controlplane.admission.causes import forbidden, not_supported
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.keys import prefix_of
from sandpool.controlplane.objects.matching import PORTION, Facts, Matcher
from sandpool.controlplane.objects.options import Listed, ListQuery
from sandpool.controlplane.store.errors import Ahead
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Compacted, Record, Snapshot
from sandpool.kube.errors import BadRequest, Gone
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

Listing = Generator[None, None, Listed]
"""A list that is computed in portions: it yields after each."""
_PRESENT = -1
_RECORD, _CHANGE = 4, 12  # the cost of one record, or change, of a scan, in the bytes that base/turns.py counts
_FORMAT = "meta.k8s.io/v1"
_TOO_OLD = "The resourceVersion for the provided list is too old."


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page starts: the revision (None: the current one), and the key after which it begins."""

    at: Revision | None
    after: str


def encode_token(revision: int, prefix: str, last: str) -> str:
    token = _Token(_FORMAT, revision, last.removeprefix(prefix))
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _decode_token(text: str, prefix: str) -> _Start:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    if token.v != _FORMAT or not token.start or token.rv < _PRESENT or token.rv == 0:
        raise BadRequest("invalid continue token: continue key is not valid: incorrect encoded start resourceVersion")
    at = None if token.rv == _PRESENT else Revision(token.rv)
    return _Start(at, prefix + token.start)


def _start(query: ListQuery, prefix: str, newest: Revision) -> _Start:
    check_match(query)
    if query.after:
        if query.revision:
            raise BadRequest("specifying resource version is not allowed when using continue")
        return _decode_token(query.after, prefix)
    if not query.revision:
        return _Start(None, "")
    if query.revision > newest:
        raise refusals.too_large(query.revision, newest)
    exact = query.match == "Exact" or (not query.match and query.limit > 0)
    return _Start(query.revision if exact else None, "")


def check_match(query: ListQuery) -> None:
    """Validates resourceVersionMatch, which needs a resourceVersion."""
    if not query.match:
        return
    field = "resourceVersionMatch"
    if query.after:
        raise refusals.bad_options("ListOptions", forbidden(field, f"{field} is forbidden when continue is provided"))
    if query.revision is None:
        why = f"{field} is forbidden unless resourceVersion is provided"
        raise refusals.bad_options("ListOptions", forbidden(field, why))
    if query.match not in ("Exact", "NotOlderThan"):
        cause = not_supported(field, query.match, ("Exact", "NotOlderThan", ""))
        raise refusals.bad_options("ListOptions", cause)
    if query.match == "Exact" and query.revision == 0:
        why = f'{field} "exact" is forbidden for resourceVersion "0"'
        raise refusals.bad_options("ListOptions", forbidden(field, why))


def list_work(store: Store, resource: Resource[Any], namespace: str, query: ListQuery) -> int:
    """The cost of the scan of a list, in the bytes that base/turns.py counts. A scan walks over all records (or over one page, if there is no
    selector), and over all changes since the requested revision."""
    prefix = prefix_of(resource, namespace)
    start = _start(query, prefix, store.revision)
    records = store.count(prefix, start.after)
    if query.limit > 0 and not query.labels and not query.fields:
        records = min(records, query.limit)
    changes = 0 if start.at is None else store.newer(prefix, start.at)
    return _RECORD * records + _CHANGE * changes


def list_objects(store: Store, resource: Resource[Any], namespace: str, query: ListQuery) -> Listed:
    """Lists without breaks, however long it takes."""
    listing = list_in_portions(store, resource, namespace, query)
    while True:
        try:
            next(listing)
        except StopIteration as end:
            found: Listed = end.value
            return found


def list_in_portions(store: Store, resource: Resource[Any], namespace: str, query: ListQuery) -> Listing:
    """Like `list_objects`, but yields after each portion of work. The list shows the state before the first break."""
    matcher = Matcher(resource, query.labels, query.fields)
    prefix = prefix_of(resource, namespace)
    start = _start(query, prefix, store.revision)
    limit = max(query.limit, 0)
    try:
        if matcher.everything:
            return _whole(store, prefix, start, limit)
        snapshot = store.scan(prefix, at=start.at, after=start.after)
    except Compacted as error:
        if query.after:
            raise refusals.TokenExpired(encode_token(_PRESENT, prefix, start.after)) from error
        raise Gone(_TOO_OLD) from error
    except Ahead as error:
        raise refusals.too_large(error.asked, error.newest) from error
    return (yield from _selected(snapshot, prefix, limit, matcher))


def _whole(store: Store, prefix: str, start: _Start, limit: int) -> Listed:
    snapshot = store.scan(prefix, at=start.at, after=start.after, limit=limit)
    if not snapshot.remaining:
        return Listed(snapshot.records, snapshot.revision)
    token = encode_token(snapshot.revision, prefix, snapshot.records[-1].key)
    return Listed(snapshot.records, snapshot.revision, token, snapshot.remaining)


def _selected(snapshot: Snapshot, prefix: str, limit: int, matcher: Matcher) -> Listing:
    """The records that match the selectors, until the page is full."""
    found: list[Record] = []
    work = 0
    for index, record in enumerate(snapshot.records):
        work += matcher.cost(record)
        if work > PORTION:
            work = 0
            yield
        if not matcher.matches(Facts(record)):
            continue
        found.append(record)
        if limit and len(found) == limit:
            more = index + 1 < len(snapshot.records)
            token = encode_token(snapshot.revision, prefix, record.key) if more else ""
            return Listed(tuple(found), snapshot.revision, token)
    return Listed(tuple(found), snapshot.revision)
