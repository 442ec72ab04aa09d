"""Free TCP ports that stay free while a broker is down.

Ports come from below the range that systems give to outgoing connections (Linux from 32768, macOS from 49152). A port
inside that range can be taken by any outgoing connection while its broker is down; worse, a client that keeps trying
to reach the dead broker on the loopback address can be given that very port as its own and then connects to itself.
"""

from __future__ import annotations

import random
import socket
from typing import Final

__all__ = ["HOST", "free_ports"]

HOST: Final = "127.0.0.1"
"""Where everything of a local cluster listens."""
FIRST_PORT: Final = 15_000
LAST_PORT: Final = 32_000


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nothing listens on at this moment; another process may still be faster."""
    candidates = random.sample(range(FIRST_PORT, LAST_PORT), k=4_000)
    ports: list[int] = []
    while len(ports) < count:
        port = candidates.pop()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the JVM does: TIME_WAIT is no obstacle
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
    return ports
