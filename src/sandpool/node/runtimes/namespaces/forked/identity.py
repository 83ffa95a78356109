"""Looks up the user and groups of a container's command in the image's /etc/passwd and /etc/group, and switches to them for good."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.targets import read_small

IDS = 65536  # ids of a sandbox
MOST_GROUPS = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids and the home of a container's user."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def look_up(user: str, extra: Sequence[int]) -> Identity:
    """Looks up a user in the files of the current root, which may be missing, contain anything, or be links to kernel files. Call it after
    `enter`, so that it can read only what the sandbox itself could read."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        return decide(user, extra, read_small(root, "etc/passwd"), read_small(root, "etc/group"))
    finally:
        os.close(root)


def decide(user: str, extra: Sequence[int], passwd: str, group: str) -> Identity:
    """`user` is a name or a number, optionally with `:group`; empty means root. Without a group, it is the user's own, or root's."""
    name, colon, group_name = (user or "0").partition(":")
    entry = next((fields for fields in _entries(passwd, 6) if name in (fields[0], fields[2])), None)
    uid = _number(entry[2] if entry else name, "user", name)
    if colon and group_name:
        found = next((fields for fields in _entries(group, 3) if group_name in (fields[0], fields[2])), None)
        gid = _number(found[2] if found else group_name, "group", group_name)
        member: list[int] = []
    else:
        gid = _number(entry[3], "group", entry[3]) if entry else 0
        member = _memberships(entry[0] if entry else "", group)
    groups = tuple(dict.fromkeys((*member, *extra)))[:MOST_GROUPS]
    if any(not 0 <= number < IDS for number in groups):
        raise Refused("CreateContainerConfigError", f"groups must be numbers below {IDS}")
    return Identity(uid, gid, groups, entry[5] if entry and entry[5].startswith("/") else "/")


def _entries(text: str, least: int) -> list[list[str]]:
    return [fields for fields in (line.split(":") for line in text.splitlines()) if len(fields) >= least]


def _memberships(name: str, group: str) -> list[int]:
    rows = [fields for fields in _entries(group, 4) if name and name in fields[3].split(",")]
    return [int(fields[2]) for fields in rows if fields[2].isascii() and fields[2].isdigit() and int(fields[2]) < IDS]


def _number(text: str, kind: str, asked: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        if int(text) < IDS:
            return int(text)
        raise Refused("CreateContainerConfigError", f"the {kind} {asked} is not below {IDS}; choose a smaller number")
    where = "/etc/passwd" if kind == "user" else "/etc/group"
    raise Refused(
        "CreateContainerConfigError", f"unable to find {kind} {asked}: no matching entry in the image's {where}"
    )


def enter(userns: int, *, ranged: bool) -> None:
    """Enters the sandbox's user namespace. Until `take`, files are opened as the sandbox's root (fsuid). This process still has an id of the
    machine, and could otherwise open files that only that id may open."""
    with doing("take the identity of the sandbox"):
        kernel.setns(userns, kernel.CLONE_NEWUSER)
        if ranged:
            kernel.touch_files_as(0, 0)


def take(identity: Identity, proc: int, *, ranged: bool) -> None:
    """Switches to the identity, after `enter`. With a range of ids, it is one of them. With a single id, a nested user namespace maps that id to
    the requested number, through the open /proc."""
    with doing("take the identity of the sandbox"):
        if ranged:
            become(identity)
        elif identity.uid or identity.gid:
            kernel.unshare(kernel.CLONE_NEWUSER)
            _show_as(identity, proc)


def become(identity: Identity) -> None:
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)


def _show_as(identity: Identity, proc: int) -> None:
    """Writes the maps of the new user namespace, in which the single id gets the requested number."""
    maps = {"setgroups": "deny", "uid_map": f"{identity.uid} 0 1", "gid_map": f"{identity.gid} 0 1"}
    for name, text in maps.items():
        file = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        os.write(file, text.encode())
        os.close(file)
