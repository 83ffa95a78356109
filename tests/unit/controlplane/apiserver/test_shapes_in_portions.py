"""Long lists and watches in another form than they are stored in: however short that is, only so much is read at once for it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from sandpool.controlplane.apiserver.handlers.watch import lines
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.render import event_shape, list_parts
from sandpool.controlplane.apiserver.response import PIECE
from sandpool.controlplane.objects.options import Listed
from sandpool.controlplane.objects.watching import RawEvent
from sandpool.controlplane.store.record import Record
from sandpool.kube.api import EventType
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.metadata import Revision

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = msgspec.json.encode({"metadata": {"name": "m", "namespace": "n"}, "data": {"k": "x" * 300_000}})
FORMS = pytest.mark.parametrize("form", [Form.TABLE, Form.PARTIAL], ids=["a table", "metadata"])


@FORMS
def test_a_watch(form: Form) -> None:
    shape = event_shape(form, CONFIG_MAPS, {}, lambda: NOW)
    chunks = list(lines([RawEvent(EventType.ADDED, LARGE, Revision(n)) for n in range(10)], shape))
    assert len(chunks) == 10
    assert sum(map(len, chunks)) < PIECE
    assert len(list(lines([RawEvent(EventType.ADDED, LARGE[:200] + b'"}}', Revision(1))] * 10, None))) == 1


@FORMS
async def test_a_list(form: Form) -> None:
    records = tuple(Record(f"k{n}", Revision(n), Revision(n), LARGE) for n in range(10))
    parts = list_parts(Listed(records, Revision(10)), form, CONFIG_MAPS, {}, NOW)
    pieces = [piece async for piece in parts.pieces()]
    assert len(pieces) == 11  # one for each, and the end
    made = msgspec.json.decode(b"".join(pieces))
    assert len(made["rows" if form is Form.TABLE else "items"]) == 10
    assert b"".join(pieces) == parts.whole()
