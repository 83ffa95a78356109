"""A document under many patches of all dialects, beside a plain model of what each should do.

After every step: the old document is untouched, what the patch did not name is the same object, and the difference between
the two states leads from one to the other.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sandpool.model.documents import same
from sandpool.model.patches import PatchError, apply_json_patch, apply_merge_patch, apply_strategic_patch, diff
from support.simulated.model_search import unhurried

KEYS = ("a", "b", "c")
SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object"},
        }
    },
}
scalars = st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2)
)
names = st.sampled_from("pqr")


class Patches(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.doc: dict[str, Any] = {"items": [], "stable": {"deep": [{}]}}
        self.before, self.frozen = self.doc, copy.deepcopy(self.doc)

    def step(self, new: dict[str, Any]) -> None:
        assert same(self.doc, self.frozen), "a patch changed the document that it was applied to"
        self.before, self.doc, self.frozen = self.doc, new, copy.deepcopy(new)

    @rule(key=st.sampled_from(KEYS), value=values)
    def add(self, key: str, value: Any) -> None:
        expected = {**self.doc, key: value}
        self.step(apply_json_patch(self.doc, [{"op": "add", "path": f"/{key}", "value": value}]))
        assert same(self.doc, expected)

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key: str) -> None:
        operation = [{"op": "remove", "path": f"/{key}"}]
        if key not in self.doc:
            with pytest.raises(PatchError):
                apply_json_patch(self.doc, operation)
            return
        self.step(apply_json_patch(self.doc, operation))
        assert key not in self.doc

    @rule(key=st.sampled_from(KEYS), value=values)
    def transfer(self, key: str, value: Any) -> None:
        """Compare and swap, as the claim path does it: only who saw the present value may change it."""
        seen = self.doc.get(key)
        swap = [
            {"op": "test", "path": f"/{key}", "value": seen},
            {"op": "replace", "path": f"/{key}", "value": value},
        ]
        self.step(apply_json_patch(self.doc, swap))
        if not same(seen, value):
            with pytest.raises(PatchError, match="test failed"):
                apply_json_patch(self.doc, swap)

    @rule(patch=st.dictionaries(st.sampled_from(KEYS), st.none() | values, max_size=3))
    def merge(self, patch: dict[str, Any]) -> None:
        new = apply_merge_patch(self.doc, patch)
        assert same(apply_merge_patch(new, patch), new), "a merge patch applied twice is one applied once"
        assert apply_merge_patch(new, patch) is new
        self.step(new)

    @rule(name=names, value=scalars)
    def strategic_upsert(self, name: str, value: Any) -> None:
        self.step(apply_strategic_patch(self.doc, {"items": [{"name": name, "value": value}]}, SCHEMA))
        assert [item["value"] for item in self.doc["items"] if item["name"] == name] == [value]

    @rule(name=names)
    def strategic_delete(self, name: str) -> None:
        self.step(apply_strategic_patch(self.doc, {"items": [{"name": name, "$patch": "delete"}]}, SCHEMA))
        assert name not in [item["name"] for item in self.doc["items"]]

    @rule(order=st.permutations("pqr"))
    def strategic_order(self, order: list[str]) -> None:
        if self.doc["items"]:
            wanted = {"$setElementOrder/items": [{"name": name} for name in order]}
            self.step(apply_strategic_patch(self.doc, wanted, SCHEMA))
            present = [item["name"] for item in self.doc["items"]]
            assert present == [name for name in order if name in present]

    @invariant()
    def untouched_parts_are_shared(self) -> None:
        assert self.doc["stable"] is self.before["stable"]
        assert same(self.doc, self.frozen)

    @invariant()
    def names_stay_unique(self) -> None:
        found = [item["name"] for item in self.doc["items"]]
        assert len(found) == len(set(found))

    @invariant()
    def the_difference_leads_there(self) -> None:
        patch = diff(self.before, self.doc)
        assert same(apply_merge_patch(self.before, patch or {}), self.doc)


TestPatches = Patches.TestCase
TestPatches.settings = settings(unhurried, max_examples=40, stateful_step_count=20)


@pytest.mark.long
class TestPatchesDeeply(Patches.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(unhurried, max_examples=1000, stateful_step_count=50)
