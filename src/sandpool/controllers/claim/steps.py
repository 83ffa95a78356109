"""What can be next for a claim: decisions as values."""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Leave:
    """The claim is being deleted: what it controls is collected with it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the sandbox that the status names: only the server knows whether the claim still has it."""

    name: str


@dataclass(frozen=True, slots=True)
class Keep:
    """The claim has this sandbox: forward what it says."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Bind:
    """The claim owns this sandbox and nothing says so yet."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Ask:
    """See what the pool has."""

    pool: SandboxWarmPool


@dataclass(frozen=True, slots=True)
class Race:
    """A sandbox of the claim's own is starting, and nobody knows of it yet. Whichever is ready first, it or a member of the
    pool, is the claim's."""

    pool: SandboxWarmPool
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a sandbox of the claim's own, as the second decision says."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not before somebody changes something, which will wake the claim."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Something is on its way; its arrival will wake the claim."""

    message: str


@dataclass(frozen=True, slots=True)
class Create:
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Mark:
    """The end has come: that is told before anything is torn down."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the claim."""

    foreground: bool


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Delete the sandboxes of a claim that stays."""

    sandboxes: tuple[Sandbox, ...]


Step = Leave | Look | Keep | Bind | Ask | Race | Start | Refuse | Mark | Remove | CleanUp
ColdStep = Create | Hold | Refuse


def said(step: object) -> str:
    """A step in a few words, for the claim's story."""
    match step:
        case Keep(sandbox) | Bind(sandbox) | Create(sandbox):
            return f"{type(step).__name__.lower()} {sandbox.metadata.name}"
        case Look(name):
            return f"look at {name}"
        case Ask(pool):
            return f"ask pool {pool.metadata.name}"
        case Race(pool, sandbox):
            return f"wait for {sandbox.metadata.name} or pool {pool.metadata.name}"
        case Start(why):
            return f"start cold: {why}"
        case Refuse(reason, message):
            return f"refuse: {reason}: {message}"
        case Hold(message):
            return f"hold: {message}"
        case Remove(foreground):
            return "delete the claim" + (" in the foreground" if foreground else "")
        case CleanUp(sandboxes):
            return f"clean up {', '.join(one.metadata.name for one in sandboxes) or 'nothing'}"
        case _:
            return type(step).__name__.lower()
