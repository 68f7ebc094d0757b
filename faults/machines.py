"""Runs that continue on another number of processes, and runs on two machines: two agents of torchrun."""

import contextlib
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from faults.launch import TORCHRUN, TOTAL_STEPS, Outcome, Run, descendants, equal, send, start_session, wait_until
from faults.processes import EARLIEST, LATEST, unbroken

TOLERANCE = 1e-5  # of the loss, relative


class Machine(NamedTuple):
    """Where an agent runs."""

    address: str
    prefix: Sequence[str] = ()  # of its command
    interface: str = "lo"


def resized(folder: Path, random_: random.Random, *, sizes: Sequence[int]) -> Outcome:
    """Stopped and resumed with another number of processes.

    The first loss after each change must be that of a copy of the run which continues with the same number. Later
    ones need not: the rounding differs, and after a dozen steps so do the digits that are shown.
    """
    run, worst = Run(folder, processes=sizes[0]), 0.0
    run.start()
    for number, processes in enumerate(sizes[1:], start=1):
        run.wait_for(number * TOTAL_STEPS // len(sizes) - random_.randint(0, 6))
        run.kill(signal.SIGTERM)
        run.end()
        step = run.saved_step() + 1
        expected = _next_loss(run, folder.with_name(f"{folder.name}-{number}"), step)
        run.processes = processes
        run.start(resume=True)
        if not run.wait_for(step) and step not in run.losses():
            return Outcome(False, note=run.end()[1][-300:])
        worst = max(worst, abs(run.losses()[step] - expected) / expected)
    code, errors, _ = run.end()
    if code or len(run.losses()) != TOTAL_STEPS:
        return Outcome(False, note=f"{len(run.losses())} steps, exit code {code}: {errors[-300:]}")
    return Outcome(worst < TOLERANCE, steps_lost=0, note=f"the losses differ by {worst:.1e}")


def _next_loss(run: Run, copy: Path, step: int) -> float:
    """The loss of a step if the run is continued as it was."""
    shutil.copytree(run.folder, copy)
    twin = Run(copy, processes=run.processes)
    twin.start(resume=True)
    wait_until(lambda: step in twin.losses())
    twin.kill(signal.SIGKILL)
    twin.end()
    return twin.losses()[step]


def two_machines(folder: Path, random_: random.Random, *, namespaces: bool, lost: bool = False) -> Outcome:
    """Two agents train one run together; `lost`: all processes of one are killed, and both start again."""
    with _namespaces() if namespaces else contextlib.nullcontext([Machine("127.0.0.1")] * 2) as machines:
        run, seconds = Run(folder), None
        agents = _start_agents(run, machines)
        if lost:
            wait_until(lambda: run.steps_logged() >= random_.randint(EARLIEST, LATEST))
            fault_at = time.monotonic()
            _kill(random_.choice(agents))
            _wait(agents)
            seconds = time.monotonic() - fault_at
            agents = _start_agents(run, machines, resume=True)
        errors = _wait(agents)
    codes = [agent.returncode for agent in agents]
    if any(codes):
        return Outcome(False, seconds, note=f"exit codes {codes}: {errors[-300:]}")
    same = equal(run.weights(), unbroken(2).weights())
    return Outcome(same, seconds, note="" if same else "other weights than those of one machine with two processes")


def _start_agents(run: Run, machines: Sequence[Machine], *, resume: bool = False) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", secrets.token_hex(4)]
    shared += ["--rdzv-endpoint", f"{machines[0].address}:{port}"]
    return [
        start_session(
            [
                *(*machine.prefix, sys.executable, *TORCHRUN, *shared, "--rdzv-conf", f"is_host={int(number == 0)}"),
                *("--local-addr", machine.address, "-m", "scfs", *run.args(resume=resume)),
            ],
            {"GLOO_SOCKET_IFNAME": machine.interface},
        )
        for number, machine in enumerate(machines)
    ]


def _wait(agents: Sequence[subprocess.Popen[str]]) -> str:
    """Wait for the end of all agents; what hangs is killed. Returns their messages."""
    wait_until(lambda: all(agent.poll() is not None for agent in agents))
    for agent in agents:
        _kill(agent)
    return "".join(agent.communicate()[1] for agent in agents)


def _kill(agent: subprocess.Popen[str]) -> None:
    """Kill an agent and its processes, as far as they live."""
    send(signal.SIGKILL, descendants(agent.pid))


@contextlib.contextmanager
def _namespaces() -> Iterator[list[Machine]]:
    """Two network namespaces, joined by a virtual cable; needs root."""
    tag = secrets.token_hex(2)
    names, cables = [f"scfs-{tag}-a", f"scfs-{tag}-b"], [f"scfs{tag}a", f"scfs{tag}b"]
    addresses = ["10.77.0.1", "10.77.0.2"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for name, cable, address in zip(names, cables, addresses, strict=True):
            _ip("link", "set", cable, "netns", name)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", cable, "up")
        yield [
            Machine(address, ("ip", "netns", "exec", name), cable)
            for name, cable, address in zip(names, cables, addresses, strict=True)
        ]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


def can_make_namespaces() -> bool:
    """Whether this user may make network namespaces."""
    try:
        with _namespaces():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


FAULTS = {
    "resumed with 1, 2 and 1 processes": (3, partial(resized, sizes=(1, 2, 1))),
    "resumed with 2, 1 and 2 processes": (3, partial(resized, sizes=(2, 1, 2))),
    "two machines (c10d rendezvous)": (3, partial(two_machines, namespaces=False)),
    "two machines, one of them lost": (3, partial(two_machines, namespaces=False, lost=True)),
    "two machines in network namespaces": (2, partial(two_machines, namespaces=True)),
}
