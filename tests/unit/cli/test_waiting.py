"""What `--for` waits for."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.objects.conditions import Condition, awaited


def body(status: str = "True", *, observed: int | None = 2, **more: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status}
    if observed is not None:
        condition["observedGeneration"] = observed  # type: ignore[assignment]
    return {"metadata": {"generation": 2}, "status": {"conditions": [condition], "n": 3, "on": True, **more}}


@pytest.mark.parametrize(
    ("text", "object_", "met"),
    [
        ("condition=Ready", body(), True),
        ("condition=ready", body(), True),
        ("condition=Ready", body("False"), False),
        ("condition=Ready=False", body("False"), True),
        ("condition=Ready=false", body("False"), True),
        ("condition=Ready=Unknown", body("Unknown"), True),
        ("condition=Other", body(), False),
        ("condition=Ready", body(observed=1), False),
        ("condition=Ready", body(observed=None), True),
        ("condition=Ready", None, False),
        ("condition=Ready", {"metadata": {}}, False),
        ("delete", None, True),
        ("delete", body(), False),
        ("create", body(), True),
        ("create", None, False),
        ("jsonpath={.status.n}=3", body(), True),
        ("jsonpath='{.status.n}'=3", body(), True),
        ("jsonpath={.status.n}=4", body(), False),
        ("jsonpath={.status.on}=true", body(), True),
        ("jsonpath={.status.n}", body(), True),
        ("jsonpath={.status.absent}", body(), False),
        ("jsonpath=.status.n=3", body(), True),
        ('jsonpath={.status.conditions[?(@.type=="Ready")].status}=True', body(), True),
        ("jsonpath={.status.n}=3", None, False),
    ],
)
def test_it_is_met(text: str, object_: dict[str, Any] | None, met: bool) -> None:
    assert awaited(text).met(object_) is met


@pytest.mark.parametrize(
    "text", ["", "Ready", "condition=", "condition", "gone", "jsonpath=", "jsonpath={.a", "delete=x"]
)
def test_other_words_are_refused_with_examples(text: str) -> None:
    with pytest.raises(Exit, match="condition=Ready") as refused:
        awaited(text)
    assert refused.value.code == USAGE


def test_it_says_what_it_waits_for() -> None:
    assert str(Condition("Ready")) == "Ready True"
    assert str(awaited("delete")) == "gone"
    assert str(awaited("jsonpath={.status.n}=3")) == "{.status.n} 3"
