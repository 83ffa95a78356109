"""Commands and environments as Kubernetes makes them from an image and a container's spec. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sandpool.base.errors import NodeError
from sandpool.node.backend import ContainerSpec
from sandpool.node.images.image import ImageConfig

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_HERE = "localhost,127.0.0.1,::1"
MOST = 2 << 20
"""Characters of a command with its arguments. The kernel takes hardly more."""


class TooLarge(Exception):
    """More text than a command may have."""


def expand(text: str, env: Mapping[str, str], most: int = MOST) -> str:
    """`$(NAME)` becomes its value, `$$` a dollar; what is not known stays as it is. Raises TooLarge before it makes more than
    `most` characters: a short text can stand for more than any memory holds."""
    left = most - len(text)

    def value(found: re.Match[str]) -> str:
        nonlocal left
        name = found[1]
        made = "$" if name is None else env.get(name, found[0])
        left -= len(made) - len(found[0])
        if left < 0:
            raise TooLarge
        return made

    return _REFERENCE.sub(value, text)


def argv(spec: ContainerSpec, config: ImageConfig, env: Mapping[str, str]) -> tuple[str, ...]:
    """A command replaces the image's entrypoint and drops its arguments; arguments alone replace those only."""
    if spec.command:
        words = (*spec.command, *spec.args)
    elif spec.args:
        return (*config.entrypoint, *_expanded(spec, spec.args, env)) or _nothing(spec)
    else:
        return (*config.entrypoint, *config.cmd) or _nothing(spec)
    return _expanded(spec, words, env)


def _expanded(spec: ContainerSpec, words: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    made: list[str] = []
    left = MOST
    try:
        for word in words:
            made.append(expand(word, env, left))
            left -= len(made[-1])
    except TooLarge:
        raise NodeError(
            "CreateContainerError",
            f"container {spec.name}: command and args take more than {MOST} characters; put what is large into a file",
        ) from None
    return tuple(made)


def _nothing(spec: ContainerSpec) -> tuple[str, ...]:
    raise NodeError(
        "CreateContainerError",
        f"container {spec.name}: no command is specified, and the image {spec.image} has none; set command",
    )


def environment(
    spec: ContainerSpec, config: ImageConfig, env: Mapping[str, str], hostname: str, proxy_port: int | None
) -> dict[str, str]:
    """What the spec says goes before what the image says, and that before what every container has."""
    made = {"PATH": PATH, "HOSTNAME": hostname}
    if spec.tty:
        made["TERM"] = "xterm"
    if proxy_port is not None:
        made |= proxies(proxy_port)
    return {**made, **config.env, "HOSTNAME": hostname, **env}


def proxies(port: int) -> dict[str, str]:
    """Both spellings, because programs disagree about which one counts."""
    address = f"http://127.0.0.1:{port}"
    upper = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": _HERE}
    return {**upper, **{name.lower(): value for name, value in upper.items()}}


def hostname(wanted: str, pod: str) -> str:
    """A pod's name may be longer than the kernel's and DNS's limit for a host's."""
    return wanted or pod[:63].rstrip("-.")
