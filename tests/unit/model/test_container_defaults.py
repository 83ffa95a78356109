"""Which limits and requests are filled into a pod spec, what is left as it is, and who is replaced for it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.admission.kinds import containers
from sandpool.model.blueprint import blueprint_hash, follows, hardened, secure_pod_spec
from sandpool.model.container_defaults import NONE, STANDARD, AmountsError, ContainerDefaults, amounts, limited
from sandpool.model.quantities import parse
from sandpool.model.sandbox import PodTemplate, SandboxSpec
from sandpool.model.template import SandboxTemplateSpec

LIMITS = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "10Gi"}
REQUESTS = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "0"}
FULL = {"limits": LIMITS, "requests": REQUESTS}


def container(resources: Any = ..., **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **({} if resources is ... else {"resources": resources}), **more}


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": list(containers or (container(),)), **more}


def room(size: Any, medium: str | None = None) -> dict[str, Any]:
    return {"name": "v", "emptyDir": {"sizeLimit": size, **({} if medium is None else {"medium": medium})}}


def without(name: str) -> dict[str, dict[str, str]]:
    return {part: {key: value for key, value in all_.items() if key != name} for part, all_ in FULL.items()}


@pytest.mark.parametrize(
    ("resources", "filled"),
    [
        pytest.param(..., FULL, id="absent"),
        pytest.param(None, FULL, id="null"),
        pytest.param({}, FULL, id="empty"),
        pytest.param({"limits": None, "requests": {}}, FULL, id="empty parts"),
        pytest.param({"limits": {"cpu": None}}, FULL, id="a null is absent"),
        pytest.param(
            {"limits": {"memory": "8Gi"}},
            {"limits": {**LIMITS, "memory": "8Gi"}, "requests": without("memory")["requests"]},
            id="one limit: its request stays what Kubernetes makes of it",
        ),
        pytest.param(
            {"requests": {"memory": "1Gi"}},
            {"limits": LIMITS, "requests": {**REQUESTS, "memory": "1Gi"}},
            id="one request",
        ),
        pytest.param(
            {"requests": {"memory": "2048Mi"}},
            {"limits": LIMITS, "requests": {**REQUESTS, "memory": "2048Mi"}},
            id="a request as large as the limit",
        ),
        pytest.param(
            {"requests": {"memory": "3Gi"}},
            {"limits": without("memory")["limits"], "requests": {**REQUESTS, "memory": "3Gi"}},
            id="a request above the limit",
        ),
        pytest.param(
            {"requests": {"ephemeral-storage": "50Gi"}},
            {
                "limits": without("ephemeral-storage")["limits"],
                "requests": {**REQUESTS, "ephemeral-storage": "50Gi"},
            },
            id="much storage",
        ),
        pytest.param(
            {"requests": {"cpu": "many"}},
            {"limits": without("cpu")["limits"], "requests": {**REQUESTS, "cpu": "many"}},
            id="a request that is no amount",
        ),
        pytest.param({"limits": dict(LIMITS)}, {"limits": LIMITS}, id="nothing is missing"),
        pytest.param({"limits": {**LIMITS, "cpu": "0"}}, {"limits": {**LIMITS, "cpu": "0"}}, id="zero is said, too"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "device"}]},
            {
                "limits": {"nvidia.com/gpu": 1, **LIMITS},
                "requests": REQUESTS,
                "claims": [{"name": "device"}],
            },
            id="devices and claims stay",
        ),
        pytest.param("much", "much", id="no resources"),
        pytest.param({"limits": ["cpu"]}, {"limits": ["cpu"]}, id="no limits"),
        pytest.param({"requests": 3}, {"requests": 3}, id="no requests"),
    ],
)
def test_what_is_absent_is_filled_in(resources: Any, filled: Any) -> None:
    bare = container(resources)
    made = limited(pod(bare, initContainers=[bare]), STANDARD)
    assert made == pod(container(filled), initContainers=[container(filled)])


def test_each_container_for_itself() -> None:
    made = limited(pod(container({"requests": {"cpu": "4"}}), container()), STANDARD)
    assert made["containers"][0]["resources"]["limits"] == without("cpu")["limits"]
    assert made["containers"][1]["resources"] == FULL


def test_storage_is_counted_for_the_pod_as_a_whole() -> None:
    """A limit of the second one alone would be the limit of both."""
    made = limited(pod(container({"requests": {"ephemeral-storage": "50Gi"}}), container()), STANDARD)
    assert made["containers"][1]["resources"] == without("ephemeral-storage")


@pytest.mark.parametrize(
    ("volume", "filled"),
    [
        pytest.param(room("10Gi"), FULL, id="as much"),
        pytest.param(room(None), FULL, id="no size"),
        pytest.param(room("11Gi"), without("ephemeral-storage"), id="more storage"),
        pytest.param(room("11Gi", ""), without("ephemeral-storage"), id="more storage, spelt out"),
        pytest.param(room("4Gi", "Memory"), without("memory"), id="more memory"),
        pytest.param(room("1Gi", "Memory"), FULL, id="less memory"),
        pytest.param(room("64Gi", "HugePages"), FULL, id="something else"),
        pytest.param({"name": "v", "configMap": {}}, FULL, id="another volume"),
        pytest.param("v", FULL, id="no volume"),
    ],
)
def test_room_that_the_author_gives_is_not_taken_away(volume: Any, filled: Any) -> None:
    assert limited(pod(volumes=[volume]), STANDARD)["containers"] == [container(filled)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(pod(resources={"limits": {"memory": "1Gi"}}), id="limits of the pod"),
        pytest.param(pod(os={"name": "windows"}), id="windows"),
        pytest.param(pod(nodeSelector={"kubernetes.io/os": "windows"}), id="windows by selector"),
        pytest.param({}, id="nothing"),
        pytest.param({"containers": "x", "initContainers": ["x", None]}, id="no containers"),
    ],
)
def test_pods_that_are_left_alone(spec: dict[str, Any]) -> None:
    assert hardened(spec, STANDARD) == hardened(spec)


def test_only_what_has_a_default() -> None:
    some = ContainerDefaults(amounts("memory=1Gi"), amounts("cpu=1"))
    assert limited(pod(), some)["containers"] == [container({"limits": {"memory": "1Gi"}, "requests": {"memory": "0"}})]
    bare = pod()
    assert limited(bare, NONE) is bare
    assert limited(bare, ContainerDefaults(requests=amounts("cpu=1"))) is bare


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (" , ", {}),
        ("memory=1.5Gi, cpu = 500m,", {"cpu": "500m", "memory": "1536Mi"}),
        ("ephemeral-storage=1e9", {"ephemeral-storage": "1e9"}),
    ],
)
def test_amounts(text: str, found: dict[str, str]) -> None:
    assert {name: str(amount) for name, amount in amounts(text)} == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu", "cpu: say it once"),
        ("cpu=1,cpu=1", "cpu: say it once"),
        ("cpu=", "cpu: '' is not an amount"),
        ("memory=2GB", "memory: '2GB' is not an amount"),
        ("memory=128m", "memory: 128m is not a whole number of bytes"),
        ("cpu=1u", "cpu: 1u is not a whole number of m"),
        ("cpu=0", "above 0"),
        ("memory=-1Gi", "above 0"),
        ("nvidia.com/gpu=1", "'nvidia.com/gpu' is none of cpu, memory, ephemeral-storage"),
        ("=1", "'' is none of"),
    ],
)
def test_what_are_no_amounts(text: str, said: str) -> None:
    with pytest.raises(AmountsError, match=said):
        amounts(text)


def test_a_request_is_at_most_its_limit() -> None:
    with pytest.raises(AmountsError, match="memory: the request 2Gi is above the limit 1Gi"):
        ContainerDefaults(amounts("memory=1Gi"), amounts("memory=2Gi"))


SIZES = {
    "cpu": ("0", "1m", "100m", 2, "2000m", "3", 0.5),
    "memory": ("0", "64Mi", "2Gi", "2147483649", "3G", 5),
    "ephemeral-storage": ("0", "1Gi", "10Gi", "11Gi"),
}
NAMES = st.sampled_from(sorted(SIZES))


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    """Valid ones: no request is above its limit."""
    limits = {name: draw(st.sampled_from(SIZES[name])) for name in draw(st.sets(NAMES))}
    requests = {name: draw(st.sampled_from(SIZES[name])) for name in draw(st.sets(NAMES))}
    kept = {name: it for name, it in requests.items() if name not in limits or parse(it) <= parse(limits[name])}
    parts = {"limits": limits, "requests": kept, "claims": [{"name": "d"}]}
    return {part: parts[part] for part in sorted(draw(st.sets(st.sampled_from(sorted(parts)))))}


CONTAINERS = st.lists(st.builds(container, resources() | st.none() | st.just(...)), min_size=1, max_size=3).map(
    lambda several: [{**one, "name": f"c{number}"} for number, one in enumerate(several)]
)
VOLUMES = st.lists(
    st.builds(room, st.sampled_from(["1Gi", "3Gi", "20Gi"]), st.sampled_from([None, "Memory"])), max_size=2
)
PODS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": st.just([]),
        "volumes": VOLUMES,
        "resources": st.just({"limits": {"memory": "3Gi"}}),
        "os": st.sampled_from([{"name": "windows"}, {"name": "linux"}]),
    },
)
DEFAULTS = st.sampled_from(
    [
        NONE,
        STANDARD,
        ContainerDefaults(amounts("memory=64Mi,cpu=1"), amounts("memory=64Mi")),
        ContainerDefaults(amounts("cpu=2")),
    ]
)


@given(PODS, DEFAULTS)
def test_once_is_enough_and_the_author_keeps_what_he_wrote(spec: dict[str, Any], defaults: ContainerDefaults) -> None:
    before = deepcopy(spec)
    once = hardened(spec, defaults)
    assert spec == before
    assert hardened(once, defaults) is once
    for old, new in zip(spec["containers"], once["containers"], strict=True):
        had, has = old.get("resources") or {}, new.get("resources") or {}
        assert has.get("claims") == had.get("claims")
        for part in ("limits", "requests"):
            assert (had.get(part) or {}).items() <= (has.get(part) or {}).items()
        assert {**new, "resources": 0} == {**hardened(pod(old, **_system(spec)))["containers"][0], "resources": 0}


@given(PODS, DEFAULTS)
def test_a_valid_pod_stays_valid(spec: dict[str, Any], defaults: ContainerDefaults) -> None:
    assert _refused(spec) == []
    made = hardened(spec, defaults)
    assert _refused(made) == []
    for old, new in zip(spec["containers"], made["containers"], strict=True):
        had, has = old.get("resources") or {}, new.get("resources") or {}
        for name in set(has.get("limits") or {}) - set(had.get("limits") or {}):
            assert name in has["requests"]  # else the limit would be reserved


def _refused(spec: dict[str, Any]) -> list[Any]:
    """What an API server would say; the image is not its business here."""
    names: set[str] = set()
    return [cause for one in spec["containers"] for cause in containers.check("c", one, names, set())]


def _system(spec: dict[str, Any]) -> dict[str, Any]:
    return {"os": spec["os"]} if "os" in spec else {}


def a_template(spec: dict[str, Any]) -> SandboxTemplateSpec:
    return SandboxTemplateSpec(pod_template=PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec))))


def made(template: SandboxTemplateSpec, defaults: ContainerDefaults) -> SandboxSpec:
    spec = secure_pod_spec(template, defaults)
    return SandboxSpec(pod_template=PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec))))


OTHERS = ContainerDefaults(amounts("memory=4Gi"), amounts("memory=128Mi"))
MINE = a_template(pod(container({"limits": LIMITS, "requests": {}})))


@pytest.mark.parametrize(
    ("template", "then", "now", "stays"),
    [
        pytest.param(a_template(pod()), STANDARD, STANDARD, True, id="the same"),
        pytest.param(a_template(pod()), NONE, STANDARD, True, id="made by an earlier version"),
        pytest.param(a_template(pod()), STANDARD, OTHERS, False, id="other defaults"),
        pytest.param(a_template(pod()), STANDARD, NONE, False, id="no defaults any more"),
        pytest.param(MINE, STANDARD, OTHERS, True, id="the template says all of it itself"),
        pytest.param(MINE, NONE, STANDARD, True, id="then as well"),
    ],
)
def test_who_is_replaced_when_defaults_change(
    template: SandboxTemplateSpec, then: ContainerDefaults, now: ContainerDefaults, stays: bool
) -> None:
    assert follows(made(template, then), template, now) is stays
    assert (blueprint_hash(template, then) == blueprint_hash(template, now)) is (then == now)


def test_limits_of_the_template_a_member_must_have() -> None:
    member = made(a_template(pod()), NONE)
    assert not follows(member, a_template(pod(container(FULL))), STANDARD)
    assert follows(made(a_template(pod()), STANDARD), a_template(pod(container(FULL))), STANDARD)  # written down


@given(PODS)
def test_every_form_of_a_sandbox_follows_its_template(spec: dict[str, Any]) -> None:
    template = a_template(spec)
    assert follows(made(template, STANDARD), template, STANDARD)
    assert follows(made(template, NONE), template, STANDARD)
