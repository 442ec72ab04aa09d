"""Every decision of a fetch, and no I/O: sockets, clocks and logs live in `connector.net`.

How a topic-partition is read
-----------------------------
A range ``[start, end)`` is read at one node at a time. It begins at the leader, which answers with records, or with
the id of a replica in our rack and no records (KIP-392, "preferred read replica"). That replica is then read under a
lease. Whatever goes wrong at a follower means only one thing: read at the leader. Only the leader's word ends a range
early, and it is asked for it: where the position's leader epoch ends (KIP-320), and where its log begins and ends.

A follower shows new records a little later than the leader, so the end of a range may not be visible there yet. The
range waits for it a bounded time and then goes on at the leader for a while. While a topic-partition must be read at
its leader, its requests are sent in a form that a leader never redirects (Fetch v10), or it would be sent back at once.

Rooms inside
------------
`decisions` says what an answer means, as a value of `outcome`; `commit` makes it state. `replica` is where a
topic-partition is read, `selection` and `local_logs` where we choose ourselves; `progress` is how far a range has come,
`positions` how it is held against the leader's log; `session` is what a broker remembers of us (KIP-227); `topics`
watches for topics that come back as others (KIP-516); `tails` are records that came too early; `view` is the cluster as
last seen. `requests` plans, `answers` takes what comes back, and `engine` is the front of it all.
"""
