"""Sockets, clock and logs: the only room that talks to brokers.

`transport` moves bytes, `connection` exchanges messages with one broker, `network` waits for many. On top stand
`fetcher`, which reads ranges as the engine in `connector.fetch` says, and `cluster_client`, which answers the planner's
questions. `pool` keeps fetchers from one task to the next; it is only a cache.
"""
