"""Our answers against those that a real kube-apiserver gave to the same objects (see support/api/admission_golden.py)."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.admit import FieldValidation, admit
from sandpool.kube.errors import ApiError
from sandpool.model.kinds import ALL
from support.api.admission_golden import SYSTEM, Case, answers, cases, without

_GIVEN = {"uid": "0", "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
_ANSWERS = {family: answers(family) for family in ("builtin", "custom", "metadata")}


def our_answer(case: Case) -> dict[str, Any]:
    resource = next(resource for resource in ALL if resource.kind == case.kind)
    old = None
    if case.update:
        created = admit(resource, case.base, None).body
        old = {**created, "metadata": {**created["metadata"], **_GIVEN}}
    try:
        admitted = admit(
            resource,
            case.sent(case.base if old is None else old),
            old,
            subresource=case.subresource,
            validation=FieldValidation(case.validation),
            patched=case.patch,
        )
    except ApiError as error:
        status = error.body()
        return {name: status[name] for name in ("code", "reason", "message", "details") if name in status}
    warnings = {"warnings": list(admitted.warnings)} if admitted.warnings else {}
    return {"accepted": admitted.body, **warnings}


def comparable(answer: dict[str, Any], case: Case) -> dict[str, Any]:
    """Without what is random: a server walks Go maps, so the order of causes is not its own."""
    if "accepted" in answer:
        hidden = (*(f"metadata.{name}" for name in SYSTEM), *case.ignore)
        return {**answer, "accepted": without(answer["accepted"], hidden)}
    causes = sorted(
        (c["reason"], c.get("field", ""), c["message"]) for c in answer.get("details", {}).get("causes", ())
    )
    loose = bool(case.ours and "loose" in case.ours)
    details = {name: value for name, value in answer.get("details", {}).items() if name != "causes"}
    same = {"code": answer["code"], "reason": answer["reason"], "details": details}
    if loose:
        return same | {"fields": sorted({field for _, field, _ in causes})[:1]}
    message = answer["message"]
    return same | {"causes": causes, "message": message if len(set(causes)) < 2 else message.partition(": [")[0]}


@pytest.mark.parametrize("case", [case for case in cases() if "skip" not in (case.ours or {})], ids=str)
def test_we_answer_as_the_real_server_does(case: Case) -> None:
    real = _ANSWERS[case.family][case.name]
    expected = (case.ours or {}).get("answer", real)
    assert comparable(our_answer(case), case) == comparable(expected, case)


def test_every_case_was_recorded() -> None:
    assert {(case.family, case.name) for case in cases()} == {
        (family, name) for family, found in _ANSWERS.items() for name in found
    }
