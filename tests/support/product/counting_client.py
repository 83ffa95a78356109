"""A program that uses a sandbox while others kill its cluster: starts a command that counts, says how far it is for each line of its input, and at
the end whether the output was complete. As a program of its own, because the SDK keeps connections open until the program ends."""

from __future__ import annotations

import sys

from sandpool import Sandbox

COUNTING = "i=0; while ! [ -e /tmp/stop ]; do i=$((i+1)); echo $i; echo $i $$ >/tmp/count; sleep 0.02; done"


def main() -> None:
    with Sandbox.claim("python") as box, box.start(COUNTING) as process:
        for _ in sys.stdin:
            while not (found := box.run("cat /tmp/count").stdout.split()):
                pass  # it is just being written
            print(*found, flush=True)
        box.run("touch /tmp/stop")
        output = [int(line) for line in process.result().stdout.split()]
        print("complete" if output == list(range(1, len(output) + 1)) else output, flush=True)


if __name__ == "__main__":
    main()
