"""Every command: where it is, in which group, and what the overview says of it. Nothing of it is imported before it runs."""

from __future__ import annotations

from typing import NamedTuple

from cyclopts import Group


class Command(NamedTuple):
    name: str
    path: str  # module:attribute, below sandpool.cli
    group: Group
    help: str


MACHINE = Group("A cluster on this machine", sort_key=1)
SANDBOXES = Group("Sandboxes", sort_key=2)
OBJECTS = Group("Objects and pools", sort_key=3)
KUBERNETES = Group("Kubernetes", sort_key=4)
OTHER = Group("Other", sort_key=5)

COMMANDS = (
    Command("up", "up:up", MACHINE, "Start a cluster on this machine."),
    Command("status", "status:status", MACHINE, "Show whether it runs, and how its pools are."),
    Command("down", "down:down", MACHINE, "Stop it. Everything it acknowledged stays."),
    Command("image", "image:image", MACHINE, "The images that sandboxes of this machine start from."),
    Command("token", "token:token", MACHINE, "Print credentials for one namespace."),
    Command("backup", "backup:backup", MACHINE, "Write a consistent copy of every object to a file."),
    Command("restore", "backup:restore", MACHINE, "Make every object what it was in a backup."),
    Command("claim", "inside.claim:claim", SANDBOXES, "Take a sandbox from a pool, and keep it."),
    Command("run", "inside.run:run", SANDBOXES, "Take a sandbox, run a command in it, give it back."),
    Command("exec", "inside.exec:exec_", SANDBOXES, "Run a command in a sandbox that you have."),
    Command("shell", "inside.exec:shell", SANDBOXES, "Open a terminal in a sandbox."),
    Command("cp", "inside.cp:cp", SANDBOXES, "Copy files and folders into a sandbox, or out of it."),
    Command("logs", "inside.logs:logs", SANDBOXES, "Show what a sandbox's own process says."),
    Command(
        "port-forward", "inside.port_forward:port_forward", SANDBOXES, "Make ports of a sandbox ports of this machine."
    ),
    Command("ls", "objects.ls:ls", SANDBOXES, "List claims: state, pool, sandbox, age."),
    Command(
        "suspend", "objects.power:suspend", SANDBOXES, "Stop a sandbox; only files in persistent volumes are kept."
    ),
    Command("resume", "objects.power:resume", SANDBOXES, "Bring a suspended sandbox back."),
    Command("release", "objects.release:release", SANDBOXES, "Give sandboxes back."),
    Command("top", "objects.top:top", SANDBOXES, "Show what sandboxes use of processor and memory."),
    Command("get", "objects.get:get", OBJECTS, "Show objects."),
    Command("describe", "objects.describe:describe", OBJECTS, "Tell everything about one object, and what to do."),
    Command("wait", "objects.wait:wait", OBJECTS, "Wait until something is true of objects."),
    Command("pool", "objects.pool:pool", OBJECTS, "Make warm pools, size them, and follow what becomes of them."),
    Command("why", "why:why", OBJECTS, "Tell what happened to one object, and why."),
    Command("controller", "controller:controller", KUBERNETES, "Run the controllers on a Kubernetes cluster."),
    Command("router", "router:router", KUBERNETES, "Run the router: the way into sandboxes there."),
    Command("install", "install:install", KUBERNETES, "Install the controllers there."),
    Command("crds", "crds:crds", KUBERNETES, "Print the CustomResourceDefinitions."),
    Command("simulate", "simulate:simulate", OTHER, "Run the controllers on a simulated cluster, with faults."),
    Command("load", "load:load", OTHER, "Drive a cluster with claims, and tell how it went."),
    Command("completion", "completion:completion", OTHER, "Print what makes a shell complete commands and names."),
)
