"""`sandpool completion`: what makes a shell complete commands, flags and names of objects."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell.")],
    /,
) -> None:
    """Print what makes a shell complete commands, flags, and names of claims, pools and other objects.

    bash: put `source <(sandpool completion bash)` into ~/.bashrc. zsh: write it to a file `_sandpool` in a folder of $fpath.
    fish: write it to ~/.config/fish/completions/sandpool.fish.
    """
    from sandpool.cli.main import build

    print(build().generate_completion(shell=shell))
