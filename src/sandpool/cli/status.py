"""`sandpool status`: what runs in a data directory."""

from __future__ import annotations

import msgspec

from sandpool.cli.exits import FAILED, NOT_FOUND, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.http import answers


def status(*, data_dir_: DataDirFlag = None, output: OutputFlag = "table") -> None:
    """Show whether the local cluster runs, where its API is and which kubeconfig reaches it.

    Exits with 3 if none runs and with 1 if it runs but does not answer.
    """
    directory = data_dir(data_dir_)
    if directory.holder() is None:
        raise Exit(NOT_FOUND, f"no cluster runs in {directory.root}. Start one with `sandpool up`.")
    running = directory.read_running()
    if running is None:
        raise Exit(FAILED, f"the cluster in {directory.root} is still starting")
    healthy = answers(running)
    facts = {**msgspec.to_builtins(running), "healthy": healthy}
    if output == "json":
        print(msgspec.json.encode(facts).decode())
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<{width}}  {value}")
    if not healthy:
        raise Exit(
            FAILED,
            f"process {running.pid} holds {directory.root} but {running.api} does not answer. Look into what it says "
            f"({directory.log} if detached), or stop it with `sandpool down`",
        )
