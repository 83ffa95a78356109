"""kubectl's JSONPath templates. What is expected here was compared with kubectl (integration/cli/test_kubectl_agrees.py)."""

from __future__ import annotations

import pytest

from sandpool.cli.output.jsonpath import find, template
from sandpool.model.jsonpath import JsonPathError

POD = {
    "metadata": {"name": "a", "labels": {"app.io/tier": "web", "team": "red"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "n": 2}, {"type": "Other", "status": "False", "n": 7}]
    },
    "spec": {"on": True, "none": None, "ports": [80, 443, 8080]},
}
LIST = {"items": [{"metadata": {"name": "a"}, "n": 1}, {"metadata": {"name": "b"}, "n": 2}]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{.metadata.name}", "a"),
        (".metadata.name", "a"),
        ("metadata.name", "a"),
        ("{$.metadata.name}", "a"),
        ("{@.metadata.name}", "a"),
        ("{.metadata.labels.app\\.io/tier}", "web"),
        ("{.metadata.labels['app.io/tier']}", "web"),
        ('{.metadata["name"]}', "a"),
        ("{.spec.ports[0]}", "80"),
        ("{.spec.ports[-1]}", "8080"),
        ("{.spec.ports[0:2]}", "80 443"),
        ("{.spec.ports[::2]}", "80 8080"),
        ("{.spec.ports[0,2]}", "80 8080"),
        ("{.spec.ports[*]}", "80 443 8080"),
        ("{.spec.ports}", "[80,443,8080]"),
        ("{.spec.on}", "true"),
        ("{.spec.none}", ""),
        ("{.absent.field}", ""),
        ('{.status.conditions[?(@.type=="Ready")].status}', "True"),
        ("{.status.conditions[?(@.type=='Ready')].status}", "True"),
        ("{.status.conditions[?(@.type!='Ready')].type}", "Other"),
        ("{.status.conditions[?(@.n>2)].type}", "Other"),
        ("{.status.conditions[?(@.n<=2)].type}", "Ready"),
        ("{.status.conditions[?(@.absent)].type}", ""),
        ("{.status.conditions[?(@.n)].type}", "Ready Other"),
        ("{..type}", "Ready Other"),
        ("{.metadata.*}", 'a {"app.io/tier":"web","team":"red"}'),
        ("name={.metadata.name}!", "name=a!"),
        ('{.metadata.name}{"\\t"}{.spec.on}{"\\n"}', "a\ttrue\n"),
        ('{"{braces}"}', "{braces}"),
        ('{range .status.conditions[*]}{.type}={.status}{","}{end}', "Ready=True,Other=False,"),
        ("{range .spec.ports[*]}{@}{' '}{end}done", "80 443 8080 done"),
    ],
)
def test_templates(text: str, shown: str) -> None:
    assert template(text)(POD) == shown


def test_ranges_nest_and_see_the_root() -> None:
    text = "{range .items[*]}{.metadata.name}:{range $.items[*]}{.n}{end};{end}"
    assert template(text)(LIST) == "a:12;b:12;"


@pytest.mark.parametrize(
    "text", ["{.a", "{.a[}", "{.a['b}", "{end}", "{range .a}", "{.a[?(@.b==c)]}", "{.a[b]}", '{"open}', "{.a b}", "{!}"]
)
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(JsonPathError):
        template(text)


def test_find_takes_a_path_with_or_without_braces() -> None:
    assert find("{.spec.ports[1]}", POD) == find(".spec.ports[1]", POD) == find("spec.ports[1]", POD) == [443]
    assert find(".absent", POD) == []
