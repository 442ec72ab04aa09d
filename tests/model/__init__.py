"""An executable specification of a Kafka cluster as its consumers meet it, and a simulator of engines on it.

Everything here is plain Python in virtual time: milliseconds come in as arguments, chance comes from one injected
``random.Random``, so a history is repeated by its seed. It is written to be read beside the papers it states:

=====================  ================================================================================================
module                 what it states
=====================  ================================================================================================
`log`                  a replica's log: leader epochs (KIP-101, KIP-320), transactions (KIP-98), retention, compaction
`replication`          how followers copy, how the high watermark rises and spreads, who is in sync
`election`             who may lead and in which order: local log eligibility, clean and unclean
`controller`           what was decided: topics and their ids (KIP-516), assignments (KIP-455), leaders, who is alive
`broker`               one broker's replicas and its own, late knowledge of the cluster
`selector`             which replica a leader names to a consumer (KIP-392)
`session_cache`        incremental fetch sessions and who is evicted (KIP-227)
`reading`              what a replica answers by offset (KIP-392)
`serving`              Fetch: redirects, size limits (KIP-74), the long poll, current leaders (KIP-951)
`lookups`              ListOffsets (KIP-207), OffsetForLeaderEpoch (KIP-320), DescribeLogDirs
`replicated`           all of this wired together, and what happens by itself
`cluster`              the front: one cluster, its requests, its faults and the truth for checks
`settings`, `timers`   the switches, and virtual time
=====================  ================================================================================================

Where the papers and Apache Kafka disagree, Apache's behaviour is the default and `settings.ModelSettings` has a switch.
"""
