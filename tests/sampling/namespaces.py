"""Two hosts on one machine: network namespaces with addresses of their own, and a store that both can reach."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

STORE = "10.77.9.9"
"""Address of the store, as seen from both hosts."""


def can_make_namespaces() -> bool:
    """Tell whether network namespaces can be made on this machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"wids-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode:
        return False
    linked = subprocess.run(
        ["ip", "-n", name, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        check=False,
        capture_output=True,
    )
    _ip("netns", "del", name)
    return linked.returncode == 0


class Hosts:
    """Two hosts and a store, linked in pairs, which exist during the `with` block.

    On the link between the hosts, host 0 has the address 10.77.3.1 and host 1 has 10.77.3.2, both on the interface
    `peer`. The store sees them as 10.77.1.2 and 10.77.2.2.
    """

    def __init__(self) -> None:
        self._names = [f"wids-{os.getpid()}-{part}" for part in ("host0", "host1", "store")]

    def __enter__(self) -> Self:
        first, second, store = self._names
        for name in self._names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        self._link(first, "peer", "10.77.3.1", second, "peer", "10.77.3.2")
        for name, net, interface in ((first, 1, "left"), (second, 2, "right")):
            self._link(name, "store", f"10.77.{net}.2", store, interface, f"10.77.{net}.1")
            _ip("-n", name, "route", "add", STORE, "via", f"10.77.{net}.1")
        _ip("-n", store, "address", "add", f"{STORE}/32", "dev", "lo")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on host 0 or 1, or on the store, 2."""
        return ["ip", "netns", "exec", self._names[host], *command]

    def _link(self, one: str, at_one: str, address: str, other: str, at_other: str, other_address: str) -> None:
        ends = (one, at_one, address), (other, at_other, other_address)
        _ip("-n", one, "link", "add", at_one, "type", "veth", "peer", "name", at_other, "netns", other)
        for name, interface, own in ends:
            _ip("-n", name, "address", "add", f"{own}/24", "dev", interface)
            _ip("-n", name, "link", "set", interface, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
