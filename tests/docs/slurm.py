"""A SLURM cluster of several nodes on this machine: the real daemons, which run until the `with` block ends."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUM_NODES = 4
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=2
GresTypes=gpu
NodeName=node[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=64 Gres=gpu:8
PartitionName=all Nodes=ALL Default=YES State=UP
"""
WITH_NAMES = 'mount --bind "$0/hosts" /etc/hosts && exec slurmd -D -f "$1" -N "$2"'
"""Starts a node with an /etc/hosts of its own, in which the nodes' names are known to it and to its jobs."""


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Start a cluster whose nodes claim 64 CPUs and 8 GPUs each; yield the environment for `srun` and `sbatch`."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as running:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(128))
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "gres.conf").write_text(f"NodeName=node[0-{NUM_NODES - 1}] Name=gpu File={folder}/gpu[0-7]\n")
        names = " ".join(f"node{number}" for number in range(NUM_NODES))
        (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {names}\n")
        first = _free_ports(NUM_NODES + 1)
        configuration = folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname(),
                folder=folder,
                last=NUM_NODES - 1,
                ports=(first, first + 1, first + NUM_NODES),
            )
        )
        files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        commands = [
            ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files],
            ["slurmctld", "-D", "-f", str(configuration)],
            *(
                ["unshare", "--mount", "sh", "-c", WITH_NAMES, str(folder), str(configuration), f"node{number}"]
                for number in range(NUM_NODES)
            ),
        ]
        log = running.enter_context((folder / "log").open("wb"))
        read_log = (folder / "log").read_text
        for command in commands:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
            running.callback(daemon.wait)
            running.callback(daemon.terminate)
            if command[0] == "munged":
                wait((folder / "munge.socket").exists, read_log)
        environment = {**os.environ, "SLURM_CONF": str(configuration)}
        wait(lambda: _states(environment) == {"idle"}, read_log)
        yield environment
        subprocess.run(["scancel", "--user=root"], env=environment, check=True)
        wait(lambda: not _ask(environment, "squeue", "--noheader"), read_log)


def _states(environment: dict[str, str]) -> set[str]:
    return set(_ask(environment, "sinfo", "--noheader", "--Node", "--format=%T").split())


def _ask(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60).stdout


def wait(condition: Callable[[], bool], read_log: Callable[[], str]) -> None:
    """Wait until a condition is true.

    Args:
        condition: Returns whether it is true now.
        read_log: Returns a log, for the message if it never becomes true.

    Raises:
        TimeoutError: The condition was not true within three minutes.
    """
    end = time.monotonic() + 180
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(read_log())
        time.sleep(0.1)


def _free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that are free."""
    for first in range(16_800, 30_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as attempt:
                    attempt.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise OSError("no free ports")
