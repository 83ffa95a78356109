"""All commands: module, group and one-line help. A command's module is imported only when it runs."""

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
    Command("status", "status:status", MACHINE, "Show whether it is running, and the state of its pools."),
    Command("down", "down:down", MACHINE, "Stop the cluster. Its data is kept."),
    Command("image", "image:image", MACHINE, "Manage the images that sandboxes on this machine start from."),
    Command("token", "token:token", MACHINE, "Print credentials for one namespace."),
    Command("backup", "backup:backup", MACHINE, "Write a consistent copy of every object to a file."),
    Command("restore", "backup:restore", MACHINE, "Restore every object from a backup."),
    Command("claim", "sandbox.claim:claim", SANDBOXES, "Claim a sandbox from a pool and keep it."),
    Command("run", "sandbox.run:run", SANDBOXES, "Claim a sandbox, run a command in it, release it."),
    Command("exec", "sandbox.exec:exec_", SANDBOXES, "Run a command in a claimed sandbox."),
    Command("shell", "sandbox.exec:shell", SANDBOXES, "Open a terminal in a sandbox."),
    Command("cp", "sandbox.cp:cp", SANDBOXES, "Copy files and directories into or out of a sandbox."),
    Command("logs", "sandbox.logs:logs", SANDBOXES, "Show the logs of a sandbox's main process."),
    Command("port-forward", "sandbox.port_forward:port_forward", SANDBOXES, "Forward local ports to a sandbox."),
    Command("ls", "objects.ls:ls", SANDBOXES, "List claims: state, pool, sandbox, age."),
    Command(
        "suspend", "objects.power:suspend", SANDBOXES, "Stop a sandbox; only files in persistent volumes are kept."
    ),
    Command("resume", "objects.power:resume", SANDBOXES, "Resume a suspended sandbox."),
    Command("release", "objects.release:release", SANDBOXES, "Release sandboxes."),
    Command("top", "objects.top:top", SANDBOXES, "Show CPU and memory usage of sandboxes."),
    Command("get", "objects.get:get", OBJECTS, "Show objects."),
    Command("describe", "objects.describe:describe", OBJECTS, "Show one object in detail, with advice on what to do."),
    Command("wait", "objects.wait:wait", OBJECTS, "Wait until objects meet a condition."),
    Command("pool", "objects.pool:pool", OBJECTS, "Create and scale warm pools, and follow their rollouts."),
    Command("why", "why:why", OBJECTS, "Explain what happened to one object, and why."),
    Command("controller", "controller:controller", KUBERNETES, "Run the controllers on a Kubernetes cluster."),
    Command("router", "router:router", KUBERNETES, "Run the router, which gives access to sandboxes there."),
    Command("install", "install:install", KUBERNETES, "Install the controllers there."),
    Command("crds", "install:crds", KUBERNETES, "Print the CustomResourceDefinitions."),
    Command("simulate", "simulate:simulate", OTHER, "Run the controllers on a simulated cluster, with faults."),
    Command("load", "load:load", OTHER, "Load a cluster with claims and report the results."),
    Command("completion", "completion:completion", OTHER, "Print a shell completion script."),
)
