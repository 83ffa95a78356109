"""Owner references that say the same twice: kept once, with a warning, as servers do."""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.objects.document import Document

_WARNING = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)
_encode = msgspec.json.Encoder(order="sorted").encode
_LATE = " after mutating admission happens"


def settle_owners(metadata: Document, *, patched: bool = False) -> tuple[str, ...]:
    """Removes repetitions from a metadata of our own; the warning, if there were any."""
    references = metadata.get("ownerReferences")
    if not references or len(references) < 2:
        return ()
    kept: dict[bytes, Any] = {}  # by their bytes: there may be thousands
    repeated: list[str] = []
    for reference in references:
        said = _encode(reference)
        if said in kept:
            repeated.append(reference["uid"])
        else:
            kept[said] = reference
    if not repeated:
        return ()
    metadata["ownerReferences"] = list(kept.values())
    return (_WARNING.format(_LATE if patched else "", ", ".join(repeated)),)
