"""Bytes to and from one broker, without ever blocking. Errors of the operating system end here as typed errors."""

from __future__ import annotations

import errno
import os
import socket
from typing import Protocol

from connector.errors import ConnectFailed, ConnectionLost

__all__ = ["TcpTransport", "TcpTransports", "Transport", "TransportFactory"]

_UNDER_WAY = frozenset({0, errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK})


class Transport(Protocol):
    """What a connection needs of a byte stream; a test's stand-in implements it too."""

    def fileno(self) -> int:
        """Return the descriptor to wait on."""

    def is_connected_nowait(self) -> bool:
        """Tell whether the stream is open both ways; raises `ConnectFailed` when it will not be."""

    def send_nowait(self, data: memoryview) -> int:
        """Send what can be sent at once; return how many bytes. Raises `ConnectionLost`."""

    def receive_nowait(self, into: memoryview) -> int | None:
        """Receive what is there; None when nothing is. Raises `ConnectionLost`, at the stream's end too."""

    def close(self) -> None:
        """Close; may be called twice."""


class TransportFactory(Protocol):
    """Opens transports; begins to connect and returns at once."""

    def __call__(self, host: str, port: int) -> Transport:
        """Return a transport that is connecting to the address. Raises `ConnectFailed`."""


class TcpTransports:
    """Opens plain TCP streams; a host with several addresses is tried at the next one each time.

    Parameters
    ----------
    receive_buffer_bytes : int
        Size of each socket's receive buffer; -1 leaves it to the operating system.
    """

    def __init__(self, receive_buffer_bytes: int = -1) -> None:
        self._receive_buffer_bytes = receive_buffer_bytes
        self._open_counts: dict[tuple[str, int], int] = {}

    def __call__(self, host: str, port: int) -> TcpTransport:
        """Begin to connect. Resolving a name blocks for as long as the resolver takes."""
        node = f"{host}:{port}"
        open_count = self._open_counts.get((host, port), 0)
        self._open_counts[host, port] = open_count + 1
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectFailed(node, f"can't resolve the address: {error}") from error
        family, _, _, _, address = found[open_count % len(found)]
        return TcpTransport(node, family, address, self._receive_buffer_bytes)


class TcpTransport:
    """One plain TCP stream, to one address of a broker."""

    def __init__(
        self,
        node: str,
        family: socket.AddressFamily,
        address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
        receive_buffer_bytes: int,
    ) -> None:
        self._node = node
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectFailed(node, f"can't open a socket: {error}") from error
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if receive_buffer_bytes >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._is_connected = False
        try:
            self._check_connect(self._socket.connect_ex(address))
        except ConnectFailed:
            self.close()  # nobody owns it yet
            raise

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def is_connected_nowait(self) -> bool:
        """Tell whether the connection stands; raises `ConnectFailed` when it was refused."""
        if not self._is_connected:
            self._check_connect(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            try:
                self._socket.getpeername()
            except OSError:
                return False
            self._is_connected = True
        return True

    def send_nowait(self, data: memoryview) -> int:
        """Send what fits into the socket's buffer."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(self._node, f"the connection broke while sending: {error}") from error

    def receive_nowait(self, into: memoryview) -> int | None:
        """Receive into the caller's buffer."""
        try:
            received_bytes = self._socket.recv_into(into)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost(self._node, f"the connection broke while receiving: {error}") from error
        if received_bytes == 0:
            raise ConnectionLost(self._node, "the broker closed the connection")
        return received_bytes

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _check_connect(self, code: int) -> None:
        if code not in _UNDER_WAY:
            raise ConnectFailed(self._node, f"can't connect ({os.strerror(code)}): is it up, and is the address right?")
