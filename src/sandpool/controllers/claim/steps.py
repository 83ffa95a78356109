"""The possible next steps of a claim: decisions as values."""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Leave:
    """The claim is being deleted: what it controls is garbage-collected with it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the sandbox that the status names: only the server knows whether the claim still has it."""

    name: str


@dataclass(frozen=True, slots=True)
class Keep:
    """The claim is bound to this sandbox: forward its status."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Bind:
    """The claim owns this sandbox, and its status does not show it yet."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the assigner for a member of the pool."""

    pool: SandboxWarmPool


@dataclass(frozen=True, slots=True)
class Race:
    """The claim's own sandbox is starting and is not published yet. Whichever is ready first, it or a member of the
    pool, is bound."""

    pool: SandboxWarmPool
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Start:
    """Start a sandbox of the claim's own; `cold_step` decides how."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The claim cannot be served until an object changes, which will wake it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The claim waits for something that will wake it."""

    message: str


@dataclass(frozen=True, slots=True)
class Create:
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Mark:
    """The claim has expired: its status says so before anything is deleted."""


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


def describe(step: object) -> str:
    """A step in a few words, for the reconcile history."""
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
