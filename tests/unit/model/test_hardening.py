"""What is filled into a pod spec, what is left as it is, and that both forms of a sandbox follow one template."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.model.blueprint import follows, hardened, secure_pod_spec
from sandpool.model.sandbox import PodTemplate, SandboxSpec
from sandpool.model.template import SandboxTemplateSpec

SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}
CONFINED = {"allowPrivilegeEscalation": False}
CONTRACT = {
    "automountServiceAccountToken": False,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
}


def container(context: Any = ..., **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **({} if context is ... else {"securityContext": context}), **more}


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": list(containers or (container(),)), **more}


def test_what_is_absent_is_filled_in() -> None:
    bare = pod(container(), container(name="d"), initContainers=[container(name="i", restartPolicy="Always")])
    assert hardened(bare) == {
        "containers": [container(CONFINED), container(CONFINED, name="d")],
        "initContainers": [container(CONFINED, name="i", restartPolicy="Always")],
        "securityContext": SECCOMP,
    }


@pytest.mark.parametrize("context", [None, {}, {"runAsUser": 1000}, {"seccompProfile": None}])
def test_the_rest_of_the_pods_context_stays(context: Any) -> None:
    assert hardened(pod(securityContext=context))["securityContext"] == {**(context or {}), **SECCOMP}


@pytest.mark.parametrize("profile", [{"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "p.json"}])
def test_a_profile_of_the_template_wins(profile: Any) -> None:
    assert hardened(pod(securityContext={"seccompProfile": profile}))["securityContext"] == {"seccompProfile": profile}


def test_a_profile_of_one_container_says_nothing_about_the_others() -> None:
    own = {"seccompProfile": {"type": "Unconfined"}}
    made = hardened(pod(container(own), container(name="d")))
    assert made["securityContext"] == SECCOMP
    assert made["containers"] == [container({**own, **CONFINED}), container(CONFINED, name="d")]


@pytest.mark.parametrize(
    ("context", "added"),
    [
        pytest.param(None, CONFINED, id="null"),
        pytest.param({}, CONFINED, id="empty"),
        pytest.param({"allowPrivilegeEscalation": None}, CONFINED, id="a null is absent"),
        pytest.param({"privileged": False, "runAsUser": 0}, CONFINED, id="root is not privileged"),
        pytest.param({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}, CONFINED, id="another capability"),
        pytest.param({"capabilities": {"drop": ["SYS_ADMIN"]}}, CONFINED, id="dropped, not asked for"),
        pytest.param({"capabilities": None}, CONFINED, id="no capabilities"),
        pytest.param({"allowPrivilegeEscalation": True}, {}, id="the template says so"),
        pytest.param({"allowPrivilegeEscalation": False}, {}, id="the template says so, too"),
        pytest.param({"privileged": True}, {}, id="privileged"),
        pytest.param({"capabilities": {"add": ["CHOWN", "CAP_SYS_ADMIN"]}}, {}, id="as the API server spells it"),
        pytest.param({"capabilities": {"add": ["SYS_ADMIN"]}}, {}, id="as manifests spell it"),
        pytest.param({"capabilities": {"add": ["cap_sys_admin"]}}, {}, id="as runtimes also read it"),
        pytest.param({"capabilities": {"add": ["ALL"]}}, {}, id="all of them"),
    ],
)
def test_a_container_gains_no_privileges_unless_it_needs_them(context: Any, added: dict[str, Any]) -> None:
    (made,) = hardened(pod(container(context)))["containers"]
    assert made == container({**(context or {}), **added})
    (first,) = hardened(pod(initContainers=[container(context)]))["initContainers"]
    assert first == made


@pytest.mark.parametrize("windows", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}])
def test_pods_for_windows_may_have_neither(windows: dict[str, Any]) -> None:
    spec = pod(initContainers=[container()], **windows)
    assert hardened(spec) is spec


@pytest.mark.parametrize("linux", [{"os": {"name": "linux"}}, {"nodeSelector": {"kubernetes.io/os": "linux"}}])
def test_pods_for_linux_have_both(linux: dict[str, Any]) -> None:
    assert hardened(pod(**linux)) == {**pod(container(CONFINED)), **linux, "securityContext": SECCOMP}


@pytest.mark.parametrize("field", ["runtimeClassName", "hostUsers", "resources", "hostNetwork", "overhead"])
def test_the_rest_of_the_pod_passes_through(field: str) -> None:
    value: Any = {"runtimeClassName": "gvisor", "hostUsers": False, "hostNetwork": True}.get(field, {"cpu": "1"})
    assert hardened(pod(**{field: value}))[field] == value


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None, "securityContext": "x"},
        {"containers": ["x", None, {"securityContext": 3}], "os": "windows", "nodeSelector": ["kubernetes.io/os"]},
    ],
)
def test_what_is_no_pod_spec_is_not_made_worse(spec: dict[str, Any]) -> None:
    made = hardened(deepcopy(spec))
    assert {key: value for key, value in made.items() if key in spec and key != "securityContext"} == {
        key: value for key, value in spec.items() if key != "securityContext"
    }


CONTEXTS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "allowPrivilegeEscalation": st.none() | st.booleans(),
        "runAsUser": st.just(7),
        "capabilities": st.fixed_dictionaries(
            {}, optional={"add": st.lists(st.sampled_from(["CAP_SYS_ADMIN", "SYS_ADMIN", "CHOWN", "ALL"]), max_size=2)}
        ),
    },
)
CONTAINERS = st.lists(st.builds(container, CONTEXTS) | st.builds(container), min_size=1, max_size=3)
PODS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": CONTAINERS | st.just([]),
        "securityContext": st.none()
        | st.just({})
        | st.builds(lambda kind: {"seccompProfile": {"type": kind}}, st.sampled_from(["Unconfined", "RuntimeDefault"])),
        "os": st.sampled_from([{"name": "windows"}, {"name": "linux"}]),
        "runtimeClassName": st.just("kata"),
    },
)


@given(PODS)
def test_hardening_twice_is_hardening_once_and_the_template_is_not_touched(spec: dict[str, Any]) -> None:
    before = deepcopy(spec)
    once = hardened(spec)
    assert spec == before
    assert hardened(once) is once
    assert _stripped(once) == _stripped(spec)


@given(PODS)
def test_no_container_is_made_invalid(spec: dict[str, Any]) -> None:
    for field in ("containers", "initContainers"):
        for before, after in zip(spec.get(field, []), hardened(spec).get(field, []), strict=True):
            context = after.get("securityContext") or {}
            if after != before:
                assert context["allowPrivilegeEscalation"] is False
                assert not context.get("privileged")
                assert "CAP_SYS_ADMIN" not in (context.get("capabilities") or {}).get("add", [])


@given(PODS)
def test_a_sandbox_of_either_form_follows_its_template(spec: dict[str, Any]) -> None:
    template = a_template(spec)
    assert follows(a_sandbox(secure_pod_spec(template)), template)
    assert follows(a_sandbox({**spec, **CONTRACT}), template)


def _stripped(value: Any) -> Any:
    """Without the two fields that may be added, and what is empty without them."""
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _stripped(child) for key, child in value.items()}
    gone = {"seccompProfile": SECCOMP["seccompProfile"], "allowPrivilegeEscalation": False}
    kept = {key: child for key, child in kept.items() if gone.get(key, ...) != child and child is not None}
    return {key: child for key, child in kept.items() if key != "securityContext" or child}


def a_template(spec: dict[str, Any]) -> SandboxTemplateSpec:
    return SandboxTemplateSpec(pod_template=PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec))))


def a_sandbox(spec: dict[str, Any]) -> SandboxSpec:
    return SandboxSpec(pod_template=PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec))))


@pytest.mark.parametrize(
    ("was", "now", "stays"),
    [
        pytest.param({}, {"allowPrivilegeEscalation": True}, False, id="escalation is allowed"),
        pytest.param({"allowPrivilegeEscalation": True}, {}, False, id="escalation is no longer allowed"),
        pytest.param({}, {"allowPrivilegeEscalation": False}, True, id="the default is written down"),
        pytest.param({"allowPrivilegeEscalation": False}, {}, True, id="what is the default is left out"),
        pytest.param({}, {"privileged": True}, False, id="privileged"),
    ],
)
def test_a_change_of_the_template_rolls_if_it_changes_what_is_made(was: Any, now: Any, stays: bool) -> None:
    member = a_sandbox(secure_pod_spec(a_template(pod(container(was)))))
    assert follows(member, a_template(pod(container(now)))) is stays


def test_what_a_template_asks_for_a_member_of_another_installation_must_have() -> None:
    """Absent in the member means: not restricted. That is forgiven a template that leaves it out, and no other."""
    foreign = a_sandbox({**pod(), **CONTRACT})
    assert follows(foreign, a_template(pod()))
    assert not follows(foreign, a_template(pod(container(CONFINED))))
    assert not follows(foreign, a_template(pod(securityContext=SECCOMP)))


def test_half_a_hardening_is_neither_form() -> None:
    template = a_template(pod(container(), container(name="d")))
    assert not follows(a_sandbox({**pod(container(CONFINED), container(name="d")), **CONTRACT}), template)
