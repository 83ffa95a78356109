"""Builds the root file system of runsc itself: its program, its state, the container's root and volumes, and nothing of the machine.

A program that breaks out of gVisor's kernel finds itself in this root, as an unprivileged user, with an empty network. Each command builds it
in its own mount namespace with the privileges of the fork server, then enters it for good. requests.py knows the layout.
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
from sandpool.node.runtimes.namespaces.forked.layers import Ids, Stage, host_root, image_root
from sandpool.node.runtimes.namespaces.forked.namespaces import raise_loopback, write_maps
from sandpool.node.runtimes.namespaces.forked.rootfs import QUIET, mount_dev, place_mount
from sandpool.node.runtimes.namespaces.forked.targets import find, make_directory, make_file, parts, read_small


def user_namespace(ids: Sequence[int]) -> int:
    """Creates a user namespace. `ids`: first id inside, first id outside, count. A child enters the new namespace and waits there until this
    process, which has the privileges, has written its maps."""
    with doing("make a user namespace", "Namespaces"):
        ready, entered = os.pipe()
        done, leave = os.pipe()
        child = os.fork()
        if child == 0:
            _enter(entered, done, leave)
        os.close(entered)
        os.close(done)
        try:
            pid = os.read(ready, 64).decode()
            if not pid.isdigit():
                number = int(pid[1:] or errno.EAGAIN)
                raise OSError(number, os.strerror(number), "unshare")
            write_maps(f"/proc/{pid}", " ".join(str(number) for number in ids).encode(), groups=ids[2] > 1)
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        finally:
            os.close(ready)
            os.close(leave)
            os.waitpid(child, 0)


def _enter(entered: int, done: int, leave: int) -> None:
    try:
        os.close(leave)
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(entered, os.readlink("/proc/self").encode())  # its pid in the namespace of the mounted /proc
        except OSError as error:
            os.write(entered, f"-{error.errno}".encode())
        os.read(done, 1)
    finally:
        os._exit(0)


STATE, MEET, VOLUMES, PROGRAM = "/state", "/meet", "/volumes", "/runsc"
ROOT_BYTES = 16 << 20  # for config files and mount points; what containers write is elsewhere
TERMINALS = 8  # terminals of the machine; gVisor's kernel implements those of programs inside
NOBODY_BUT_ROOT = Identity(0, 0, (), "/")

Request = dict[str, Any]


def build(request: Request, ids: Ids, state: str) -> Request:
    """Builds the root and makes it the root of this process, which keeps its privileges. Returns the container's user."""
    with doing("prepare a root for runsc", "Gvisor"):
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    stage = Stage(f"{request['directory']}/world", ids, ROOT_BYTES)
    stage.open()
    place = _root_of_container(stage, request)
    with doing("prepare a root for runsc", "Gvisor"):
        os.chmod(".", 0o755)  # noqa: S103  # for runsc, who is nobody
        root = os.open(".", os.O_PATH | os.O_DIRECTORY)
        for name in ("proc", "tmp", "bundle", "volumes", "state", "meet"):
            os.mkdir(name, 0o755)
            os.chown(name, *ids.root)
        kernel.mount("proc", "proc", "proc", QUIET)
        for file in mount_dev(root, ids, TERMINALS):
            os.close(file)
        _lay(state, make_directory(root, "state", ids.root), 0)
        _lay(f"{request['directory']}/meet", make_directory(root, "meet", ids.root), kernel.ATTR_RDONLY)
        _lay(request["runsc"], make_file(root, "runsc", ids.root), kernel.ATTR_RDONLY)
    for number, mount in enumerate(request.get("mounts", ())):
        parts(mount["target"])
        with doing(f"mount {mount['target']}"):
            tree = (
                kernel.open_tree(f"{request['directory']}/memory/{mount['volume']}")
                if mount["source"] is None
                else None
            )
            place_mount(root, {**mount, "target": f"{VOLUMES}/{number}"}, ids, tree)
    who = complete(request, root, place) if place else {}
    with doing("prepare a root for runsc", "Gvisor"):
        for name, content in request.get("files", {}).items():
            _write(f"bundle/{name}", content, ids)
        os.fchdir(root)
        kernel.pivot_here()
        os.close(root)
    return who


def _root_of_container(stage: Stage, request: Request) -> str:
    layers = list(reversed(request.get("layers", ())))
    if request.get("host"):
        return host_root(stage, layers, request["host"], request["etc"])
    return image_root(stage, layers, request["etc"]) if layers else ""


def complete(request: Request, root: int, place: str) -> Request:
    """Completes the OCI config with what was not known before: the path of the root, and the ids of its user."""
    inside = find(root, place, os.O_PATH | os.O_DIRECTORY)
    try:
        keep_tmp(inside)
        who = decide(
            request["user"], request["groups"], read_small(inside, "etc/passwd"), read_small(inside, "etc/group")
        )
        check_command(inside, request["files"]["config.json"]["process"])
        check_targets(inside, [mount["target"] for mount in request.get("mounts", ())])
    finally:
        os.close(inside)
    config = request["files"]["config.json"]
    config["root"]["path"] = f"/{place}"
    user = {"uid": who.uid, "gid": who.gid, "additionalGids": list(who.groups)}
    config["process"] = as_user(config["process"], user, who.home)
    return {"user": user, "home": who.home}


def keep_tmp(inside: int) -> None:
    """Makes sure that /tmp is not empty: runsc would mount a tmpfs on an empty one, which counts as memory and is limited by it."""
    owner = os.fstat(inside)
    directory = make_directory(inside, "tmp", (owner.st_uid, owner.st_gid), 0o1777)
    try:
        if not os.listdir(f"/proc/self/fd/{directory}"):
            os.mkdir(".gvisor", 0o700, dir_fd=directory)
    finally:
        os.close(directory)


def as_user(process: Request, user: Request, home: str) -> Request:
    known = any(each.startswith("HOME=") for each in process["env"])
    return {**process, "user": user, "env": [*process["env"], *([] if known else [f"HOME={home}"])]}


def check_command(inside: int, process: Request) -> None:
    """Refuses a command that does not exist, with a message like a shell's, before anything is started. Mounts are not in place yet, so a
    program that is not in the root may still be in one of them."""
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
    """Refuses targets that cannot be mounted on: runsc's own error would not say why."""
    for target in targets:
        try:
            os.close(find(inside, target))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                what = (
                    "is a link that leads nowhere"
                    if error.errno == errno.ELOOP
                    else "lies below something that is not a directory"
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
    """Becomes the sandbox's root user, which has no privileges on the machine, in a new mount namespace and, with `network`, a new network
    namespace."""
    identity.enter(userns, ranged=ranged)
    if ranged:
        with doing("take the identity of the sandbox"):
            identity.become(NOBODY_BUT_ROOT)
    with doing("make namespaces for runsc", "Gvisor"):
        kernel.unshare(kernel.CLONE_NEWNS | (kernel.CLONE_NEWNET if network else 0))
        if network:
            raise_loopback()
