"""How a served address is looked at from the same machine."""

from __future__ import annotations

from typing import Final

__all__ = ["metrics_url"]

_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared, not bound


def metrics_url(host: str, port: int) -> str:
    """Return the URL of an endpoint that is bound to `host`; an address that means "all" becomes the loopback's."""
    reachable = _ANY_ADDRESS.get(host, host)
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}/metrics"
