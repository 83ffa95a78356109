"""The root that runsc itself lives in: its own program, its state, the container's root and volumes, and nothing of the machine.

Whoever breaks out of gVisor's kernel is nobody, in an empty network, in here. Put together in a mount namespace of the command's
own with the powers of the fork-server, then entered for good. The layout is known to config.py.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sandpool.node.runtimes.namespaces.forked import identity, kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.identity import Identity, decide
from sandpool.node.runtimes.namespaces.forked.kernel_files import QUIET, mount_dev
from sandpool.node.runtimes.namespaces.forked.layers import Ids, Stage, host_root, image_root
from sandpool.node.runtimes.namespaces.forked.namespaces import raise_loopback
from sandpool.node.runtimes.namespaces.forked.rootfs import place_mount
from sandpool.node.runtimes.namespaces.forked.targets import find, make_file, make_folder, parts, read_small

STATE, MEET, VOLUMES, PROGRAM = "/state", "/meet", "/volumes", "/runsc"
WORLD_BYTES = 16 << 20  # for descriptions and the places that mounts need; what containers write is elsewhere
TERMINALS = 8  # of the machine; those of programs inside are of gVisor's own making
NOBODY_BUT_ROOT = Identity(0, 0, (), "/")

Order = dict[str, Any]


def build(order: Order, ids: Ids, state: str) -> Order:
    """Makes it the root of this process, which is still as powerful as before. The answer is who the container's user is."""
    with doing("prepare a root for runsc", "Gvisor"):
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    stage = Stage(f"{order['folder']}/world", ids, WORLD_BYTES)
    stage.open()
    place = _root_of_container(stage, order)
    with doing("prepare a root for runsc", "Gvisor"):
        os.chmod(".", 0o755)  # noqa: S103  # for runsc, who is nobody
        root = os.open(".", os.O_PATH | os.O_DIRECTORY)
        for name in ("proc", "tmp", "bundle", "volumes", "state", "meet"):
            os.mkdir(name, 0o755)
            os.chown(name, *ids.root)
        kernel.mount("proc", "proc", "proc", QUIET)
        for file in mount_dev(root, ids, TERMINALS):
            os.close(file)
        _lay(state, make_folder(root, "state", ids.root), 0)
        _lay(f"{order['folder']}/meet", make_folder(root, "meet", ids.root), kernel.ATTR_RDONLY)
        _lay(order["runsc"], make_file(root, "runsc", ids.root), kernel.ATTR_RDONLY)
    for number, mount in enumerate(order.get("mounts", ())):
        parts(mount["target"])
        with doing(f"mount {mount['target']}"):
            tree = kernel.open_tree(f"{order['folder']}/memory/{mount['volume']}") if mount["source"] is None else None
            place_mount(root, {**mount, "target": f"{VOLUMES}/{number}"}, ids, tree)
    who = complete(order, root, place) if place else {}
    with doing("prepare a root for runsc", "Gvisor"):
        for name, content in order.get("files", {}).items():
            _write(f"bundle/{name}", content, ids)
        os.fchdir(root)
        kernel.pivot_here()
        os.close(root)
    return who


def _root_of_container(stage: Stage, order: Order) -> str:
    layers = list(reversed(order.get("layers", ())))
    if order.get("host"):
        return host_root(stage, layers, order["host"], order["etc"])
    return image_root(stage, layers, order["etc"]) if layers else ""


def complete(order: Order, root: int, place: str) -> Order:
    """Puts into the description what could not be known before: where the root is, and who the user is there."""
    inside = find(root, place, os.O_PATH | os.O_DIRECTORY)
    try:
        keep_tmp(inside)
        who = decide(order["user"], order["groups"], read_small(inside, "etc/passwd"), read_small(inside, "etc/group"))
        check_command(inside, order["files"]["config.json"]["process"])
        check_targets(inside, [mount["target"] for mount in order.get("mounts", ())])
    finally:
        os.close(inside)
    config = order["files"]["config.json"]
    config["root"]["path"] = f"/{place}"
    user = {"uid": who.uid, "gid": who.gid, "additionalGids": list(who.groups)}
    config["process"] = as_user(config["process"], user, who.home)
    return {"user": user, "home": who.home}


def keep_tmp(inside: int) -> None:
    """On an empty /tmp runsc would put one in memory, which counts against another limit and ends with the memory's."""
    owner = os.fstat(inside)
    folder = make_folder(inside, "tmp", (owner.st_uid, owner.st_gid), 0o1777)
    try:
        if not os.listdir(f"/proc/self/fd/{folder}"):
            os.mkdir(".gvisor", 0o700, dir_fd=folder)
    finally:
        os.close(folder)


def as_user(process: Order, user: Order, home: str) -> Order:
    known = any(each.startswith("HOME=") for each in process["env"])
    return {**process, "user": user, "env": [*process["env"], *([] if known else [f"HOME={home}"])]}


def check_command(inside: int, process: Order) -> None:
    """What can be seen from here to be missing is refused here, in the words of a shell, before anything is started. Mounts are
    not in place yet: what is not in the root may still be in one of them."""
    argv, mounted = process["args"], bool(process.pop("mounted", False))
    if not argv:
        raise Refused("StartError", "there is no command; set the container's command or use an image that has one")
    if mounted or "\0" in argv[0]:
        return
    env = dict(each.partition("=")[::2] for each in process["env"])
    names = [argv[0]] if "/" in argv[0] else [f"{each}/{argv[0]}" for each in env.get("PATH", "").split(":") if each]
    if argv[0].startswith("/") or "/" not in argv[0]:
        for name in names:
            try:
                os.close(find(inside, name))
            except OSError:
                continue
            return
        raise Refused("StartError", f"no such file or directory: {argv[0]!r}")


def check_targets(inside: int, targets: Sequence[str]) -> None:
    """Where nothing can be mounted is refused here: runsc would only say that it got no answer from itself."""
    for target in targets:
        try:
            os.close(find(inside, target))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                what = (
                    "is a link that leads nowhere"
                    if error.errno == errno.ELOOP
                    else "lies below something that is no folder"
                )
                raise Refused("InvalidPath", f"{target} {what}") from error


def _lay(source: str, place: int, attributes: int) -> None:
    tree = kernel.open_tree(source)
    kernel.mount_setattr(tree, attributes | kernel.ATTR_NOSUID | kernel.ATTR_NODEV)
    kernel.move_mount(tree, place)
    os.close(tree)
    os.close(place)


def _write(path: str, content: Mapping[str, Any], ids: Ids) -> None:
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(file, "w") as target:
        json.dump(content, target)
        os.fchown(target.fileno(), *ids.root)


def enter(userns: int, *, ranged: bool, network: bool) -> None:
    """Becomes the sandbox's root, who is nobody on the machine, with mounts and, if asked for, a network of its own."""
    identity.enter(userns, ranged=ranged)
    if ranged:
        with doing("take the identity of the sandbox"):
            identity.become(NOBODY_BUT_ROOT)
    with doing("make namespaces for runsc", "Gvisor"):
        kernel.unshare(kernel.CLONE_NEWNS | (kernel.CLONE_NEWNET if network else 0))
        if network:
            raise_loopback()
