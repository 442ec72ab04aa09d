"""Which address to use: a node's own, or any broker that is likely to answer."""

from __future__ import annotations

from collections.abc import Callable

from connector.errors import LocalViolation
from connector.model import ClusterView
from connector.net.network import Address

__all__ = ["AddressBook"]


class AddressBook:
    """Finds brokers; remembers which address failed last, so that the next attempt goes to another.

    Parameters
    ----------
    bootstrap_servers
        Where to ask as long as no broker of the view can be reached.
    """

    def __init__(self, bootstrap_servers: tuple[Address, ...]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._failure_counts: dict[Address, int] = {}

    def of_node(self, view: ClusterView, node_id: int) -> tuple[Address, str]:
        """Return a node's address, and how to name it."""
        node = view.nodes.get(node_id)
        if node is None:
            raise LocalViolation(f"broker {node_id} is not in the view of the cluster")
        return (node.host, node.port), str(node)

    def any_broker(self, view: ClusterView, has_ready: Callable[[Address], bool]) -> tuple[Address, str]:
        """Return the broker that failed least: a connected one first, then those of the view, then bootstrap."""
        names = {(node.host, node.port): str(node) for node in view.nodes.values()}
        names |= {(host, port): f"{host}:{port}" for host, port in self._bootstrap_servers if (host, port) not in names}
        address = min(names, key=lambda each: (self._failure_counts.get(each, 0), not has_ready(each)))
        return address, names[address]

    def on_failed(self, address: Address) -> None:
        """Count a failure against an address."""
        self._failure_counts[address] = self._failure_counts.get(address, 0) + 1
