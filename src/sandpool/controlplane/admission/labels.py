"""Labels, wherever they stand: metadata, selectors."""

from __future__ import annotations

from collections.abc import Iterable

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.namerules import label_key, label_value
from sandpool.kube.errors import Cause


def check_labels(field: str, labels: Iterable[tuple[str, str]]) -> list[Cause]:
    found: list[Cause] = []
    for key, value in labels:
        if label_key(key) or label_value(value):
            found += [causes.invalid(field, key, text) for text in label_key(key)]
            found += [causes.invalid(field, value, text) for text in label_value(value)]
            if len(found) > causes.MOST_TOLD:
                break
    return found
