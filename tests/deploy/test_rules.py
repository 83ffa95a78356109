"""Least privilege, read from the code: each verb that a controller uses is granted, and each verb granted is used.

The calls are found in the sources: a verb's method or a step's name, with one of our kinds as its first argument. What a real
API server saw is compared elsewhere; this says the same without one, and names the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.app.controllers import Caches
from sandpool.install import rules
from sandpool.install.rules import Rule
from sandpool.model import kinds
from sandpool.model.resource import Resource
from sandpool.router import kubernetes
from sandpool.router.ports import Caller

SOURCE = Path(rules.__file__).parents[1]
FILES = [*sorted((SOURCE / "controllers").rglob("*.py")), SOURCE / "loop/events.py", SOURCE / "loop/lease.py"]
CALLS = {
    "get": ("get",),
    "create": ("create",),
    "patch": ("patch",),
    "patch_status": ("patch /status",),
    "delete": ("delete",),
    # Steps of the sandbox controller. One that finds the name taken reads what is there.
    "Create": ("create", "get"),
    "Change": ("patch",),
    "change": ("patch",),
    "Delete": ("delete",),
}
Grant = tuple[str, str, str]  # group, resource with its subresource, verb
KINDS = {name: value for name, value in vars(kinds).items() if isinstance(value, Resource)}
OWNERS = {resource.kind.lower(): resource for resource in kinds.OURS}


def used() -> dict[Grant, str]:
    """Every grant that the code needs, with a place that needs it."""
    found: dict[Grant, str] = {}
    for cache in Caches().all():
        resource = cache.resource
        found |= {(resource.group, resource.plural, verb): "its cache" for verb in ("list", "watch")}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                place = f"{path.relative_to(SOURCE)}:{node.lineno}"
                found |= dict.fromkeys([*written(node), *blocked(node)], place)
    return found


def word(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def written(node: ast.Call) -> Iterator[Grant]:
    resource = KINDS.get(word(node.args[0])) if node.args else None
    for verb in CALLS.get(word(node.func), ()) if resource is not None else ():
        verb, _, subresource = verb.partition(" ")
        yield resource.group, resource.plural + subresource, verb  # type: ignore[union-attr]


def blocked(node: ast.Call) -> Iterator[Grant]:
    """An owner that blocks its own deletion needs, on strict clusters, the right to change the owner's finalizers."""
    if word(node.func) != "OwnerReference":
        return
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    blocks, kind = given.get("block_owner_deletion"), given.get("kind")
    if isinstance(blocks, ast.Constant) and blocks.value is True and isinstance(kind, ast.Attribute):
        owner = OWNERS[word(kind.value).lower()]  # the class, or an object of it
        yield owner.group, f"{owner.plural}/finalizers", "update"


def granted(table: tuple[Rule, ...]) -> set[Grant]:
    return {(rule.group, rule.resource, verb) for rule in table for verb in rule.verbs}


GRANTED = granted((*rules.NAMESPACED, *rules.PLACES, *rules.OWN))


def test_what_is_used_is_granted() -> None:
    assert {grant: place for grant, place in used().items() if grant not in GRANTED} == {}


def test_what_is_granted_is_used() -> None:
    assert GRANTED - used().keys() == set()


def test_nothing_is_granted_twice() -> None:
    tables = (rules.NAMESPACED, rules.CLUSTER, rules.OWN)
    every = [(rule.group, rule.resource, verb) for table in tables for rule in table for verb in rule.verbs]
    assert len(every) == len(set(every))


ROUTER = (*rules.ROUTER_NAMESPACED, *rules.ROUTER_ACTIVITY, *rules.ROUTER_CLUSTER, *rules.USERS)


@pytest.mark.parametrize(
    "rule", [*rules.NAMESPACED, *rules.CLUSTER, *rules.OWN, *ROUTER], ids=lambda rule: rule.resource
)
def test_no_rule_is_wide(rule: Rule) -> None:
    assert rule.why
    assert not {rule.group, rule.resource, *rule.verbs} & {"*"}
    assert not set(rule.verbs) & {"deletecollection", "escalate", "bind", "impersonate"}
    assert rule.resource not in {"secrets", "serviceaccounts", "pods/exec", "pods/attach", "pods/portforward"}


def test_definitions_and_the_lease_are_named() -> None:
    assert [set(rule.names) for rule in rules.DEFINITIONS] == [{kind.group_resource for kind in kinds.OURS}]
    by_verb = {verb: rule.names for rule in rules.OWN for verb in rule.verbs}
    # The name of an object that is being created is not known to the authoriser.
    assert by_verb == {"create": (), "get": (rules.LEASE,), "patch": (rules.LEASE,)}


def test_calls_whose_kind_is_a_variable_are_known() -> None:
    """These cannot be read from the code. They carry out steps, whose kinds are known, or delete what was released."""
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"get", "list", "watch", "create", "patch", "patch_status", "delete"}
                and word(node.func.value).lstrip("_") in {"writes", "api"}
                and not (node.args and word(node.args[0]) in KINDS)
            ):
                found.add(str(path.relative_to(SOURCE)))
    assert found == {"controllers/sandbox/apply.py", "controllers/sandbox/release.py"}


def test_the_router_has_what_its_code_uses() -> None:
    """Its reads are those of its cache; its writes are calls with a kind as their first argument."""
    found = {(kinds.SANDBOXES.group, kinds.SANDBOXES.plural, verb) for verb in ("list", "watch")}
    named = {**KINDS, "TOKEN_REVIEWS": kubernetes.TOKEN_REVIEWS, "ACCESS_REVIEWS": kubernetes.ACCESS_REVIEWS}
    for path in sorted((SOURCE / "router").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            resource = named.get(word(node.args[0])) if isinstance(node, ast.Call) and node.args else None
            if resource is not None and isinstance(node, ast.Call) and word(node.func) in CALLS:
                found.add((resource.group, resource.plural, word(node.func)))
    assert found == granted((*rules.ROUTER_NAMESPACED, *rules.ROUTER_ACTIVITY, *rules.ROUTER_CLUSTER))


def test_the_right_to_use_sandboxes_is_the_one_that_the_router_asks_about() -> None:
    asked = kubernetes.access_review(Caller("somebody"), "team")["spec"]["resourceAttributes"]
    (right,) = granted(rules.USERS)
    assert right == (asked["group"], f"{asked['resource']}/{asked['subresource']}", asked["verb"])
    assert right not in granted((*rules.NAMESPACED, *rules.CLUSTER, *rules.OWN, *rules.ROUTER_NAMESPACED))
