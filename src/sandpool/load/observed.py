"""The fields of watched objects that a measurement needs. Everything else in the JSON is skipped, not decoded."""

from __future__ import annotations

import msgspec

from sandpool.model.labels import LAUNCH_TYPE, WARM_POOL
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.reasons import Type


class SeenMetadata(msgspec.Struct, gc=False, rename="camel"):
    name: str
    resource_version: str = ""
    labels: dict[str, str] | None = None

    @property
    def revision(self) -> Revision:
        """0 if the server's revisions are not numbers: then their order is unknown."""
        text = self.resource_version
        return Revision(int(text)) if text.isdecimal() else NO_REVISION


class SeenCondition(msgspec.Struct, gc=False):
    type: str
    status: str = ""
    reason: str = ""


class SeenBound(msgspec.Struct, gc=False):
    name: str = ""


class SeenStatus(msgspec.Struct, gc=False):
    conditions: list[SeenCondition] | None = None
    sandbox: SeenBound | None = None

    @property
    def ready(self) -> SeenCondition | None:
        for condition in self.conditions or ():
            if condition.type == Type.READY:
                return condition
        return None


class SeenObject(msgspec.Struct, gc=False):
    """A claim, or a sandbox (which has no `status.sandbox`)."""

    metadata: SeenMetadata
    status: SeenStatus | None = None

    @property
    def is_ready(self) -> bool:
        condition = self.status.ready if self.status else None
        return condition is not None and condition.status == "True"

    @property
    def pool_hash(self) -> str:
        """The pool whose unclaimed member this is; empty if it is not one."""
        return (self.metadata.labels or {}).get(WARM_POOL, "")

    @property
    def launch_type(self) -> str:
        """Whether a sandbox was started for a pool or for one claim; empty if unknown."""
        return (self.metadata.labels or {}).get(LAUNCH_TYPE, "")


class SeenListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class SeenList(msgspec.Struct):
    metadata: SeenListMetadata
    items: list[SeenObject] = []


decode_object = msgspec.json.Decoder(SeenObject).decode
decode_list = msgspec.json.Decoder(SeenList).decode
