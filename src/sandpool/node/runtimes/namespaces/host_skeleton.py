"""Builds the root of the `host` image besides /usr: empty directories and a minimal /etc, without secrets.

From the machine's own /etc it copies only world-readable files that programs need: certificates, alternatives, the linker's cache.
Directories of /usr in which software is installed are created here, too, so that they belong to the sandbox and are writable in its own
layer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
DIRECTORIES = {"etc": 0o755, "home": 0o755, "media": 0o755, "mnt": 0o755, "opt": 0o755, "proc": 0o555, "root": 0o700,
           "run": 0o755, "srv": 0o755, "sys": 0o555, "dev": 0o755, "tmp": 0o1777, "usr": 0o755, "var": 0o755,
           "var/cache": 0o755, "var/lib": 0o755, "var/log": 0o755, "var/tmp": 0o1777, "home/user": 0o755}  # fmt: skip
COPIED = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf",
    "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic",
    "magic.mime", "mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "protocols",
    "python3", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
FEW = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d")
"""What a shell and small programs need."""
MOST_BYTES = 4 << 20  # largest file
MOST_ENTRIES = 5000
USER = 1000

PASSWD = f"""root:x:0:0:root:/root:{{shell}}
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
user:x:{USER}:{USER}:user:/home/user:{{shell}}
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = f"""root:x:0:
daemon:x:1:
bin:x:2:
tty:x:5:
user:x:{USER}:
nogroup:x:65534:
"""
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"


def make_skeleton(target: Path, machine: Path = Path("/"), *, whole: bool = True) -> None:
    """Creates the skeleton anew each time, because an earlier one may be out of date. With `whole=False` it is enough for a shell only."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, mode=0o755)
    target.chmod(0o755)
    for name, mode in DIRECTORIES.items():
        (target / name).mkdir()
        (target / name).chmod(mode)
    if os.geteuid() == 0:
        os.chown(target / "home/user", USER, USER)
    for name in LINKED:
        source = machine / name
        if source.is_symlink():
            (target / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            (target / name).mkdir()
    (target / "var/run").symlink_to("/run")
    _etc(target / "etc", machine, _copied(machine) if whole else FEW)
    _software_directories(target / "usr", machine / "usr")
    _open_to_all(target)


def _open_to_all(target: Path) -> None:
    """Makes everything readable for others, whatever our umask: other users exist inside. Nothing here is secret."""
    for directory, directories, files in os.walk(target):
        for name in (*directories, *files):
            path = Path(directory, name)
            if not path.is_symlink() and str(path.relative_to(target)) not in DIRECTORIES:
                path.chmod(path.stat().st_mode | (0o055 if name in directories else 0o044))


def _copied(machine: Path) -> tuple[str, ...]:
    versions = (path.name for kind in ("python3.*", "java-*") for path in (machine / "etc").glob(kind))
    return (*COPIED, *versions)


def _etc(etc: Path, machine: Path, copied: Iterable[str]) -> None:
    shell = "/bin/bash" if (machine / "bin/bash").exists() else "/bin/sh"
    (etc / "passwd").write_text(PASSWD.format(shell=shell))
    (etc / "group").write_text(GROUP)
    (etc / "nsswitch.conf").write_text(NSSWITCH)
    (etc / "mtab").symlink_to("/proc/self/mounts")
    left = MOST_ENTRIES
    for name in copied:
        left = copy_public(machine / "etc" / name, etc / name, left)


def copy_public(source: Path, target: Path, left: int) -> int:
    """Copies links as links, and files and directories that are world-readable; nothing else. Returns how much of `left` remains."""
    try:
        found = source.lstat()
    except OSError:
        return left
    if left <= 0:
        return left
    if not stat.S_ISLNK(found.st_mode) and not found.st_mode & stat.S_IROTH:
        return left
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(found.st_mode):
            target.symlink_to(os.readlink(source))
        elif stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
            shutil.copyfile(source, target, follow_symlinks=False)
            target.chmod(0o755 if found.st_mode & stat.S_IXOTH else 0o644)
        elif stat.S_ISDIR(found.st_mode):
            target.mkdir(exist_ok=True)
            for entry in sorted(os.scandir(source), key=lambda each: each.name):
                left = copy_public(Path(entry.path), target / entry.name, left)
    return left - 1


def _software_directories(target: Path, source: Path) -> None:
    """Creates the directories of /usr; some levels deeper below /usr/local and for languages that install modules."""
    for name in sorted(os.listdir(source)):
        path = source / name
        if path.is_symlink() or not path.is_dir():
            continue
        (target / name).mkdir(exist_ok=True)
    for path in (*source.glob("local/*"), *source.glob("local/*/*"), *source.glob("local/lib/python3*/*-packages"),
                 *source.glob("lib/python3*/*-packages"), *source.glob("lib/node_modules")):  # fmt: skip
        if (
            path.is_dir()
            and not path.is_symlink()
            and not any(parent.is_symlink() for parent in path.parents if parent != source)
        ):
            (target / path.relative_to(source)).mkdir(parents=True, exist_ok=True)
