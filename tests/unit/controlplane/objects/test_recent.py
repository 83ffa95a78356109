"""What the memos of decoded objects hold is bounded as memory, not as stored bytes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.objects.matching import Memo
from sandpool.controlplane.objects.recent import decoded_size
from sandpool.controlplane.objects.typed import Typed
from sandpool.controlplane.store.record import Record
from sandpool.model import codec
from sandpool.model.kinds import CONFIG_MAPS, PODS, raw
from sandpool.model.metadata import Revision

MIB = 1 << 20


def stored(**fields: Any) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **fields})


SMALL_VALUES = stored(data={f"k{number}": "v" for number in range(2_000)})


def held(make: Any) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        del kept[1:]
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        pytest.param(CONFIG_MAPS, SMALL_VALUES, id="small values"),
        pytest.param(raw(PODS), stored(spec={"x": [{} for _ in range(2_000)]}), id="empty objects"),
        pytest.param(raw(PODS), stored(spec={"x": [{"a": []} for _ in range(2_000)]}), id="empty lists"),
        pytest.param(PODS, stored(metadata={"labels": {f"k{n}": "" for n in range(2_000)}}), id="labels"),
        pytest.param(CONFIG_MAPS, stored(data={"k": "é" + "x" * 20_000 + "\U0001f600"}), id="text"),
    ],
)
def test_the_estimate_is_not_too_low(resource: Any, value: bytes) -> None:
    codec.decode(resource, value)
    assert held(lambda: [codec.decode(resource, value)]) + len(value) <= decoded_size(value)


def test_decoded_objects_hold_no_more_than_their_bound() -> None:
    """By stored bytes they held ten times as much, and one tenant's were enough for that."""

    def fill() -> list[Any]:
        typed = Typed()
        for number in range(600):
            typed.object(CONFIG_MAPS, bytes(bytearray(SMALL_VALUES)), Revision(number + 1))
        return [typed]

    assert held(fill) < 72 * MIB


def test_facts_about_records_hold_no_more_than_their_bound() -> None:
    def fill() -> list[Any]:
        memo = Memo()
        for number in range(300):
            record = Record("core/configmaps/a/b", Revision(number + 1), Revision(1), bytes(bytearray(SMALL_VALUES)))
            assert memo.facts(record).document
        return [memo]

    assert held(fill) < 36 * MIB
