"""Shows what Sandpool does, in a few seconds and a temporary directory: a cluster, a warm pool, a claim, code in it, and what that code cannot do.

`make demo` runs it. It needs only this package: no network, and no root if the kernel lets ordinary users create namespaces.
Everything that it prints was measured in this run, or when the node started on this machine. Limits that this machine cannot enforce are
not shown.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandpool import Sandbox, SandpoolError

HERE = [sys.executable, "-m", "sandpool"]
POOL = "python"
FIRST = ["python3", "-c", "print(6 * 7)"]
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HELD_BY = {"ephemeral-storage": "storage"}
"""Limits of a pod that have another name in `sandpool status`."""
NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")

SEE = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "user": os.getuid(),
    "host": os.uname().nodename,
    "processes": sum(name.isdecimal() for name in os.listdir("/proc")),
    "interfaces": ", ".join(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line),
    "capabilities": bin(int(status["CapEff"], 16)).count("1"),
    "filter": {"0": "none", "2": "on"}.get(status["Seccomp"].strip(), status["Seccomp"].strip()),
    "gain": "no" if status["NoNewPrivs"].strip() == "1" else "yes",
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in NAMESPACES},
}))
"""

TRY = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def mount():
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def connect():  # to an address that is set aside for documentation
    with socket.socket() as line:
        line.settimeout(1)
        line.connect(("192.0.2.1", 443))
tries = {
    "read a file of this machine": lambda: open(SECRET).read(),
    "signal a process of this machine": lambda: os.kill(PROCESS, 0),
    "become root": lambda: os.setuid(0),
    "mount a file system": mount,
    "reach the network directly": connect,
}
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    return ""
print(json.dumps({what: outcome(attempt) for what, attempt in tries.items()}))
"""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(128 + signal.SIGHUP))
    began = time.perf_counter()
    try:
        show()
    except KeyboardInterrupt:
        sys.exit("\nstopped; nothing is left")
    except SandpoolError as error:
        sys.exit(f"demo: {error}")
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    print(f"\n{time.perf_counter() - began:.1f} s in all. Your turn: {bold('docs/tutorial/first-sandbox.md')}")


def show() -> None:
    with tempfile.TemporaryDirectory(prefix="sandpool-demo-") as folder:
        secret = Path(folder) / "secret"
        secret.write_text("only for this machine\n")
        with cluster(
            Path(folder) / "data", taking("a cluster on this machine: API server, store, controllers, router")
        ):
            done = taking("a warm pool: three sandboxes wait to be claimed")
            ask("wait", f"pool/{POOL}", "--for=condition=Ready", "--timeout=60s")
            done()
            use(str(secret))
            done = taking("stopped: the sandboxes are gone, and so is the cluster")
    done()


def use(secret: str) -> None:
    done = taking("a sandbox claimed: nobody else can get it")
    with Sandbox.claim(POOL) as box:
        done()
        done = taking(f"the first instruction in it: {FIRST[-1]}")
        said = box.run(FIRST, check=True).stdout.strip()
        done(f" said {bold(said)}")
        done = taking("a file written, run in a shell")
        box.files.write("hello.py", "print('hello from', __file__)")
        said = box.run("python3 hello.py | tr a-z A-Z", check=True).stdout.strip()
        done(f": {bold(said)}")
        compare_starts()

        names = f"NAMESPACES = {NAMESPACES!r}\n"
        inside = json.loads(box.run(["python3", "-c", names + SEE], check=True).stdout)
        outside = json.loads(subprocess.check_output([sys.executable, "-c", names + SEE]))  # noqa: S603 - our own program
        print_sights(inside, outside)
        place = f"SECRET, PROCESS = {secret!r}, {os.getpid()}\n"
        print_tries(json.loads(box.run(["python3", "-c", place + TRY], check=True).stdout))
        print_limits(box.sandbox)


def compare_starts() -> None:
    """Times the same program on this machine without a sandbox, for comparison."""
    program = shutil.which(FIRST[0], path=USUAL_PATH)
    if program is not None:
        done = taking("for comparison: the same first instruction here, outside of any sandbox")
        subprocess.run([program, *FIRST[1:]], stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own program
        done()


def print_sights(inside: dict[str, Any], outside: dict[str, Any]) -> None:
    words = {
        "user": "runs as user",
        "host": "sees as host name",
        "processes": "sees processes",
        "interfaces": "has network interfaces",
        "capabilities": "holds capabilities",
        "gain": "can gain privileges",
        "filter": "has its system calls filtered",
    }
    rows = [(what, cut(inside[key]), cut(outside[key])) for key, what in words.items()]
    own = [name for name in NAMESPACES if inside["namespaces"][name] != outside["namespaces"][name]]
    table(("a program", "in the sandbox", "on this machine"), [*rows, ("has namespaces of its own", " ".join(own), "")])


def print_tries(outcomes: dict[str, str]) -> None:
    worked = "IT WORKED: please report this"
    table(
        ("a program in it tries to", "and gets", ""),
        [(what, refusal or worked, "") for what, refusal in outcomes.items()],
    )


def print_limits(pod: str) -> None:
    """Prints the limits that this machine enforces, and the pod's notes about the others."""
    found = json.loads(ask("get", "pod", pod, "-o", "json"))
    unheld = json.loads(ask("status", "-o", "json"))["unheld"]
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    rows = [(what, most, "") for what, most in limits.items() if HELD_BY.get(what, what) not in unheld]
    if rows:
        table(("it can use", "at most", ""), rows)
    else:
        print()
    for condition in found["status"]["conditions"]:
        if condition["type"] == "sandpool.dev/Noted":
            message = condition["message"].replace(".; ", ". ")
            print(textwrap.fill(message, 96, initial_indent="  Note: ", subsequent_indent="  "))
    print()


def table(titles: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> None:
    def line(cells: tuple[str, str, str]) -> str:
        return f"  {cells[0]:<34}{cells[1]:<32}{cells[2]}".rstrip()

    print("", bold(line(titles)), *map(line, rows), sep="\n", flush=True)


@contextmanager
def cluster(data: Path, ready: Callable[[], None]) -> Iterator[None]:
    """Runs `sandpool up` as a child in its own session: Ctrl-C reaches only this program, which then stops the child."""
    for name in [name for name in os.environ if name.startswith("SANDPOOL_")]:
        del os.environ[name]
    os.environ["SANDPOOL_DATA_DIR"] = str(data)
    child = subprocess.Popen(  # noqa: S603 - our own program
        [*HERE, "up", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            if line.startswith("The cluster is ready"):
                break
        else:
            sys.exit(f"demo: the cluster did not start:\n{''.join(said)}")
        ready()
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
        child.terminate()
        child.communicate()


def ask(*arguments: str) -> str:
    done = subprocess.run([*HERE, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if done.returncode != 0:
        sys.exit(f"demo: {done.stderr}")
    return done.stdout


def taking(what: str) -> Callable[..., None]:
    """Starts timing a step. Call the result when the step is done: it prints how long it took."""
    began = time.perf_counter()
    if sys.stdout.isatty():
        print(f"{'…':>10}  {what}", end="\r", flush=True)

    def done(more: str = "") -> None:
        print(f"{bold(f'{(time.perf_counter() - began) * 1e3:7,.0f} ms')}  {what}{more}", flush=True)

    return done


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def cut(value: object, most: int = 30) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


if __name__ == "__main__":
    main()
