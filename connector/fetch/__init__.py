"""Every decision of a fetch, and no I/O: sockets, clocks and logs live in `connector.net`.

How a topic-partition is read
-----------------------------
A range ``[start, end)`` is read at one node at a time. It begins at the leader, which answers with records, or with
the id of a replica in our rack and no records (KIP-392, "preferred read replica"). That replica is then read under a
lease. Whatever goes wrong at a follower (`outcome.decide`) means only one thing: read at the leader. Only the leader's
word ends a range early.

A follower shows new records a little later than the leader, so the end of a range may not be visible there yet. The
range waits for it a bounded time and then finishes at the leader. While a partition must be read at its leader, its
requests are sent in a form that a leader never redirects (Fetch v10), or it would be sent back at once.

Rooms inside: `outcome` (what an answer means, as a value), `replica` (which node is read), `engine` (the state of the
ranges being read; takes events, returns actions).
"""
