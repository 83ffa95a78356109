"""Files and commands through the SDK and a real boxd over loopback, beside what the machine itself can do.

    python tests/bench/bench_files.py [--size MIB] [--runs N]

Contents go to the disk's cache on both sides; nothing is flushed. The rate of `cat FILE | cat > FILE` in the same run is what all others
are compared with, by turns. Memory is the largest resident size of boxd and of this program after everything, in MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.network.boxd_daemon import TOKEN
from support.network.sdk_box import AsyncBox, SyncBox


def daemon(root: Path) -> tuple[subprocess.Popen[str], int]:
    """Without the checks that tests run it with."""
    env = {**os.environ, "SANDPOOL_BOXD_TOKEN": TOKEN}
    command = [sys.executable, "-m", "sandpool.boxd", "--port", "0", "--root", str(root)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, int(process.stderr.readline().split()[-1])


def seconds(call: Callable[[], object], runs: int) -> float:
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return median(found)


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(1 << 18):
            yield data


def a_tree(top: Path, files: int, size: int) -> Path:
    for number in range(files):
        folder = top / f"{number % 50:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}").write_bytes(os.urandom(size))
    return top


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


class Bench:
    def __init__(self, work: Path, root: Path, port: int, size: int, runs: int) -> None:
        self.work, self.root, self.port, self.size, self.runs = work, root, port, size, runs
        self.source = work / "source"
        with self.source.open("wb") as file:
            for _ in range(size):
                file.write(os.urandom(1 << 16) * 16)
        (root / "there").write_bytes(b"")

    def cat(self) -> None:
        copy = self.work / "copy"
        subprocess.run(f"cat {self.source} | cat > {copy}", shell=True, check=True)
        copy.unlink()

    def beside(self, name: str, call: Callable[[], object]) -> None:
        """By turns with `cat`, because what a disk and a busy machine give changes from minute to minute."""
        pairs = [(seconds(self.cat, 1), seconds(call, 1)) for _ in range(self.runs)]
        cat, ours = (median(column) for column in zip(*pairs, strict=True))
        ratio = median(one / other for one, other in pairs)
        print(f"{name:34} {self.size / ours:7.0f} MiB/s  {ratio:5.2f} x cat ({self.size / cat:.0f} MiB/s)", flush=True)

    def rate(self, name: str, call: Callable[[], object], size: float) -> None:
        print(f"{name:34} {size / seconds(call, self.runs):7.0f} MiB/s", flush=True)

    def asynchronously(self, call: Callable[[AsyncBox], Awaitable[object]]) -> Callable[[], None]:
        async def run() -> None:
            box = AsyncBox(self.port)
            await call(box)
            await box.way.http.close()

        return lambda: asyncio.run(run())

    def files(self, box: SyncBox) -> None:
        self.beside("upload", lambda: box.files.upload(self.source, "there"))
        self.beside("upload, async", self.asynchronously(lambda box: box.files.upload(self.source, "there")))
        self.beside("upload with progress", lambda: box.files.upload(self.source, "there", progress=lambda *_: None))
        self.beside("write from an iterator", lambda: box.files.write("there", pieces(self.source)))
        self.beside("download", lambda: box.files.download("there", self.work / "back"))
        self.beside(
            "download, async", self.asynchronously(lambda box: box.files.download("there", self.work / "back2"))
        )
        for path in (self.work / "back", self.work / "back2", self.root / "there"):
            path.unlink()

    def trees(self, box: SyncBox) -> None:
        for files, size in ((2000, 4096), (20, 4 << 20)):
            self.tree(
                box, a_tree(self.work / f"tree-{files}", files, size), f"{files} x {size >> 10} KiB", files * size
            )

    def tree(self, box: SyncBox, top: Path, name: str, total: int) -> None:
        size, back = total / (1 << 20), self.work / f"back-{top.name}"
        self.rate(
            f"tree of {name}, cp -r", lambda: subprocess.run(["cp", "-rT", top, self.work / "cp"], check=True), size
        )
        self.rate(f"tree of {name}, up", lambda: box.files.upload(top, top.name), size)
        self.rate(f"tree of {name}, down", lambda: box.files.download(top.name, back), size)

    def commands(self, box: SyncBox) -> None:
        bare = seconds(lambda: subprocess.run(["/bin/true"], check=True, capture_output=True), 300) * 1000
        print(f"{'bare true':34} {bare:7.2f} ms")
        for name, call in (
            ("run true", lambda: box.run(["/bin/true"])),
            ("run true, through a shell", lambda: box.run("true")),
            ("read a small file", lambda: box.files.read("small")),
            ("write a small file", lambda: box.files.write("small", b"x" * 100)),
        ):
            box.files.write("small", b"x")
            print(f"{name:34} {seconds(call, 300) * 1000:7.2f} ms", flush=True)
        self.beside("output of a command", lambda: box.run(f"cat {self.source}"))
        with self.source.open("rb") as file:
            self.beside("input of a command", lambda: (file.seek(0), box.run("cat > /dev/null", stdin=file)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024, help="MiB of the large file")
    parser.add_argument("--runs", type=int, default=3, help="of each; the median counts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work, root = Path(folder) / "here", Path(folder) / "there"
        work.mkdir()
        root.mkdir()
        process, port = daemon(root)
        box = SyncBox(port)
        try:
            bench = Bench(work, root, port, given.size, given.runs)
            bench.files(box)
            bench.trees(box)
            bench.commands(box)
            mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"largest memory: boxd {peak(process.pid)} MiB, client {mine} MiB")
        finally:
            box.way.http.close()
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
