"""Golden cases for admission: what is sent stands in *.in.yaml, what a real kube-apiserver answered in *.out.yaml.

A case starts from a base object of its file and changes it: `with` is a merge patch, `edit` a list of [path, value] for what
a merge patch cannot say (an explicit null). `update: true` creates the base first. `ours` states a deliberate difference.
Run as a program it records the answers anew: `python tests/support/api/admission_golden.py [family...]`.
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "golden" / "admission"
NAMESPACE = "golden"
SYSTEM = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    kind: str
    base: dict[str, Any]
    change: dict[str, Any] = field(default_factory=dict)
    edit: list[Any] = field(default_factory=list)
    update: bool = False
    patch: bool = False
    subresource: str = ""
    validation: str = "Warn"
    ignore: tuple[str, ...] = ()  # paths of an accepted object that are not compared
    ours: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"

    def sent(self, start: dict[str, Any]) -> dict[str, Any]:
        document = merged(start, self.change)
        for path, value in self.edit:
            document = placed(document, path.split("."), value)
        return document


def cases(family: str = "") -> Iterator[Case]:
    for path in sorted(FOLDER.glob(f"{family or '*'}.in.yaml")):
        content = _load(path)
        for case in content["cases"]:
            yield Case(
                family=path.name.removesuffix(".in.yaml"),
                name=case["name"],
                kind=content["bases"][case["base"]]["kind"],
                base=content["bases"][case["base"]],
                change=case.get("with", {}),
                edit=case.get("edit", []),
                update=case.get("update", False),
                patch=case.get("patch", False),
                subresource=case.get("subresource", ""),
                validation=case.get("validation", "Warn"),
                ignore=tuple(case.get("ignore", ())),
                ours=case.get("ours"),
            )


def answers(family: str) -> dict[str, Any]:
    return _load(FOLDER / f"{family}.out.yaml") or {}


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


def merged(document: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return change
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def placed(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    if isinstance(document, list):
        index = int(steps[0])
        return [placed(item, steps[1:], value) if i == index else item for i, item in enumerate(document)]
    return {**document, steps[0]: placed(document.get(steps[0], {}), steps[1:], value)}


def without(document: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """A copy without the given paths."""
    for path in paths:
        document = _removed(document, path.split("."))
    return document


def _removed(document: Any, steps: list[str]) -> Any:
    if isinstance(document, list):
        return [_removed(item, steps) for item in document]
    if not isinstance(document, dict):
        return document
    if len(steps) == 1:
        return {name: value for name, value in document.items() if name != steps[0]}
    return {name: _removed(value, steps[1:]) if name == steps[0] else value for name, value in document.items()}


class _Recorder:
    def __init__(self, server: Any) -> None:
        self.server = server
        self.tls = ssl.create_default_context(cafile=str(server.ca))

    def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[Any, list[str]]:
        request = urllib.request.Request(self.server.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.server.token}")
        request.add_header("Content-Type", content_type)
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data=data, context=self.tls, timeout=30) as answer:
                warnings = [
                    text.split('"', 1)[1].rsplit('"', 1)[0].replace('\\"', '"')
                    for text in answer.headers.get_all("Warning") or []
                ]
                return json.load(answer), warnings
        except urllib.error.HTTPError as error:
            return json.load(error), []

    def record(self, case: Case) -> dict[str, Any]:
        resource = _resource(case.kind)
        collection = resource.path(NAMESPACE)
        options = f"?fieldValidation={case.validation}"
        if not case.update:
            sent = case.sent(case.base)
            answer, warnings = self.ask("POST", collection + options, sent)
            self._clean(resource, answer)
            return _answer(answer, warnings)
        created, _ = self.ask("POST", collection, case.base)
        if created["kind"] == "Status":
            raise SystemExit(f"{case}: the base was refused: {created['message']}")
        path = resource.path(NAMESPACE, created["metadata"]["name"], case.subresource) + options
        try:
            if case.patch:
                answer, warnings = self.ask("PATCH", path, case.change, "application/merge-patch+json")
            else:
                answer, warnings = self.ask("PUT", path, case.sent(created))
        finally:
            self._clean(resource, created)
        return _answer(answer, warnings)

    def _clean(self, resource: Any, body: dict[str, Any]) -> None:
        if body["kind"] == "Status" or resource.kind == "Namespace":
            return
        path = resource.path(NAMESPACE, body["metadata"]["name"])
        self.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        self.ask("DELETE", path + "?gracePeriodSeconds=0")


def _resource(kind: str) -> Any:
    from sandpool.model.kinds import ALL

    return next(resource for resource in ALL if resource.kind == kind)


def _answer(body: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    if body["kind"] == "Status":
        return {name: body[name] for name in ("code", "reason", "message", "details") if name in body}
    meta = {name: value for name, value in body["metadata"].items() if name not in SYSTEM}
    return {"accepted": {**body, "metadata": meta}, **({"warnings": warnings} if warnings else {})}


def main(families: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support.kube import server as kube_server

    with kube_server.running(controllers=False) as server:
        recorder = _Recorder(server)
        recorder.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for path in sorted(FOLDER.glob("*.in.yaml")):
            family = path.name.removesuffix(".in.yaml")
            if families and family not in families:
                continue
            found = {case.name: recorder.record(case) for case in cases(family)}
            (FOLDER / f"{family}.out.yaml").write_text(
                yaml.dump(found, Dumper=yaml.CSafeDumper, sort_keys=False, width=120)
            )
            print(family, len(found))


if __name__ == "__main__":
    main(sys.argv[1:])
