"""Free TCP ports that stay free while a broker is down.

Ports come from below the range that systems give to outgoing connections (Linux from 32768, macOS from 49152). A port
inside that range can be taken by any outgoing connection while its broker is down; worse, a client that keeps trying
to reach the dead broker on the loopback address can be given that very port as its own and then connects to itself.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Final

from streaming_app.local.errors import ProcessDied

__all__ = ["HOST", "free_ports", "start_on_free_ports"]

HOST: Final = "127.0.0.1"
"""Where everything of a local cluster listens."""
FIRST_PORT: Final = 15_000
LAST_PORT: Final = 32_000
START_ATTEMPTS: Final = 3
PORT_TAKEN_SIGNS: Final = ("Address already in use", "BindException")


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


def start_on_free_ports(start: Callable[[], None], end: Callable[[], None]) -> None:
    """Start processes that listen on `free_ports`; where another process was faster, end them and start on others.

    Parameters
    ----------
    start
        Chooses ports, starts the processes and blocks until they are ready; raises `ProcessDied` when one ends.
    end
        Ends what `start` left running.

    Raises
    ------
    ProcessDied
        One ended for another reason than a taken port, or ports were taken again and again. `end` was not called.
    """
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            start()
        except ProcessDied as error:
            if not attempts_left or not any(sign in error.log_tail for sign in PORT_TAKEN_SIGNS):
                raise
            end()
        else:
            return
