"""What a runtime is asked for, by a container's place in its pod."""

from __future__ import annotations

import pytest

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerSpec, Workload, WorkloadSpec
from sandpool.node.images.image import Image, ImageConfig, RootFs
from sandpool.node.pods.runtime_plans import PATH, argv, container_plan, environment, expand, hostname, proxies

IMAGE = Image("host", "", RootFs(host=True))


def a_container(name: str) -> ContainerSpec:
    return ContainerSpec(name=name, image="host", command=("sleep", "1"))


def test_boxd_is_got_ready_where_a_router_connects_and_nowhere_else() -> None:
    first, second, before = a_container("main"), a_container("beside"), a_container("before")
    spec = WorkloadSpec(containers=(first, second), init_containers=(before,))
    workload = Workload(Uid("uid"), Key("default", "pod"), spec)
    served = [
        container_plan(workload, each, IMAGE, {}, address="", message=None, proxy_port=None, attempt=0).served
        for each in (before, first, second)
    ]
    assert served == [False, True, False]


CONFIG = ImageConfig(entrypoint=("/entry",), cmd=("default",))


@pytest.mark.parametrize(
    ("command", "args", "made"),
    [
        ((), (), ("/entry", "default")),
        (("/mine",), (), ("/mine",)),
        ((), ("one", "two"), ("/entry", "one", "two")),
        (("/mine",), ("one",), ("/mine", "one")),
        (("$(A)",), ("-$(B)-",), ("1", "-$(B)-")),
    ],
)
def test_command_and_args(command: tuple[str, ...], args: tuple[str, ...], made: tuple[str, ...]) -> None:
    assert argv(ContainerSpec(command=command, args=args), CONFIG, {"A": "1"}) == made


def test_the_images_own_words_are_not_expanded() -> None:
    assert argv(ContainerSpec(), ImageConfig(cmd=("$(A)",)), {"A": "1"}) == ("$(A)",)


def test_no_command_at_all_is_told() -> None:
    for spec in (ContainerSpec(name="main", image="scratch"),):
        with pytest.raises(NodeError, match="scratch has none"):
            argv(spec, ImageConfig(), {})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("$(A)", "1"),
        ("$(A)$(A)", "11"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$A $ $) $(", "$A $ $) $("),
        ("cost: 5$", "cost: 5$"),
        ("a$$b", "a$b"),
        ("$(A", "$(A"),
    ],
)
def test_expansion(text: str, made: str) -> None:
    assert expand(text, {"A": "1"}) == made


def test_the_spec_goes_before_the_image_and_that_before_the_rest() -> None:
    config = ImageConfig(env={"PATH": "/image", "X": "image", "HOSTNAME": "image"})
    env = environment(ContainerSpec(tty=True), config, {"X": "spec", "no_proxy": "mine"}, "pod", 3128)
    assert (env["PATH"], env["X"], env["HOSTNAME"], env["TERM"]) == ("/image", "spec", "pod", "xterm")
    assert env["https_proxy"] == env["HTTP_PROXY"] == "http://127.0.0.1:3128"
    assert (env["no_proxy"], env["NO_PROXY"]) == ("mine", "localhost,127.0.0.1,::1")


def test_without_a_proxy_there_is_no_word_of_one() -> None:
    env = environment(ContainerSpec(), ImageConfig(), {}, "pod", None)
    assert env == {"PATH": PATH, "HOSTNAME": "pod"}
    assert set(proxies(1)) == {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    }


def test_a_long_name_becomes_a_short_host() -> None:
    assert hostname("", "a" * 62 + "-" + "b" * 30) == "a" * 62
    assert hostname("chosen", "pod") == "chosen"
