"""Planted bugs: each one is a bug that a real client had, as a change of a few words in the engine.

The tests are good as long as each of them is found (`python -m tests.mutants`).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: `before` occurs in `path` once, and becomes `after`."""

    name: str
    seen_in: str
    path: str
    before: str
    after: str


MUTANTS = (
    Mutant(
        "a follower's -1 clears the choice",
        "sarama #2071, kafka-python 3.x",
        "connector/fetch/commit.py",
        "            if _is_worth_following(",
        "            if outcome.preferred_read_replica == NO_NODE:\n"
        "                state.choices.on_left(asked.topic_partition, now_ms)\n"
        "            if _is_worth_following(",
    ),
    Mutant(
        "partitions are never forgotten in a session",
        "platformatic/kafka #321",
        "connector/fetch/session.py",
        "tuple(changed), forgotten, tuple(replaced))",
        "tuple(changed), (), tuple(replaced))",
    ),
    Mutant(
        "a follower's out-of-range skips to the end",
        "Redpanda #16146, clients with a reset policy",
        "connector/fetch/decisions.py",
        "        reason = ReplicaChange.OUT_OF_RANGE\n",
        "        reason = ReplicaChange.OUT_OF_RANGE\n"
        "        error = OffsetsAgedOut(str(asked.topic_partition), asked.fetch_offset, -1, asked.node)\n"
        "        return Skip(asked.end_offset, 0, error)\n",
    ),
    Mutant(
        "a follower's diverging epoch is believed",
        "KIP-320 as a consumer could read it (reference 5.4)",
        "connector/fetch/decisions.py",
        "        return ReturnToLeader(ReplicaChange.FOLLOWER_ERROR, problem)\n",
        "        node, end_offset = asked.node, reply.diverging_end_offset\n"
        "        return Fail(LogTruncated(str(asked.topic_partition), asked.fetch_offset, end_offset, 0, node))\n",
    ),
    Mutant(
        "bounds are asked of a follower",
        "librdkafka #4616",
        "connector/fetch/requests.py",
        "    if progress.state is not PositionState.FETCHING or _is_leader_only(",
        "    if _is_leader_only(",
    ),
    Mutant(
        "the position goes by the number of records",
        "clients before compaction (FetcherTest.testUpdatePositionWithLastRecordMissingFromBatch)",
        "connector/records/layout.py",
        "next_offset = base_offset + last_offset_delta + 1",
        "next_offset = base_offset + header[-1]",
    ),
    Mutant(
        "the same node is asked again without a pause",
        "franz-go #885, Redpanda #31580",
        "connector/fetch/commit.py",
        "Backoff(first_ms=20, longest_ms=200)",
        "Backoff(first_ms=0, longest_ms=0)",
    ),
    Mutant(
        "the same answer extends the lease",
        "Java before KIP-392's lease was settled (reference 2.1)",
        "connector/fetch/replica.py",
        "        if choice.node_id == node_id:\n            return False\n",
        "        if choice.node_id == node_id:\n"
        "            choice.until_ms = now_ms + self._lease_ms\n"
        "            return False\n",
    ),
    Mutant(
        "the lease never ends",
        "sarama #3553",
        "connector/fetch/replica.py",
        "choice.state is not ReplicaState.LEASED or now_ms > choice.until_ms:",
        "choice.state is not ReplicaState.LEASED:",
    ),
    Mutant(
        "redirects are followed for ever",
        "franz-go TestAuditPreferredReplicaUnknownBrokerNoStrand",
        "connector/fetch/replica.py",
        "            self._begin_leader_only(choice, ReplicaEvent.REDIRECTED_IN_VAIN, now_ms)\n"
        "            return True\n",
        "            return False\n",
    ),
    Mutant(
        "an answer counts although the leader changed meanwhile",
        "librdkafka 0139",
        "connector/fetch/answers.py",
        "    if progress.state is not PositionState.FETCHING:\n        return Discard(",
        "    if progress.state is None:\n        return Discard(",
    ),
    Mutant(
        "who answered is judged by who leads now",
        "Java (reference 2.4, note)",
        "connector/fetch/answers.py",
        "asked = replace(asked_then, waited_ms=progress.waited_ms(now_ms), is_budget_spent=has_records)",
        "leads = state.view.current.partitions[topic_partition].leader_id\n"
        "        asked = replace(\n"
        "            asked_then,\n"
        "            waited_ms=progress.waited_ms(now_ms),\n"
        "            is_budget_spent=has_records,\n"
        "            from_leader=leads == sent.plan.node_id,\n"
        "        )",
    ),
    Mutant(
        "aborted transactions are kept from answer to answer",
        "FetcherTest.testReadCommittedWithCompactedTopic",
        "connector/fetch/answers.py",
        "asked.fetch_offset, end_offset, answer.aborted_transactions)",
        "asked.fetch_offset, end_offset, _all_aborted(answer.aborted_transactions))\n\n\n"
        "_KEPT: list[tuple[int, int]] = []\n\n\n"
        "def _all_aborted(listed: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:\n"
        "    _KEPT.extend(listed)\n"
        "    return tuple(_KEPT)",
    ),
    Mutant(
        "the session goes on after a request without an answer",
        "KIP-227: an epoch counts even when its answer was lost",
        "connector/fetch/session.py",
        "    return SessionState(state.session_id)\n",
        "    return state\n",
    ),
    Mutant(
        "an unknown session is asked for again under its id",
        "dpkp/kafka-python #2575",
        "connector/fetch/session.py",
        "SessionEvent.ID_NOT_FOUND: SessionRule(_FULL, is_data_used=False)",
        "SessionEvent.ID_NOT_FOUND: SessionRule(_INCREMENTAL, is_data_used=False)",
    ),
    Mutant(
        "the session epoch wraps to 0",
        "KIP-227 (FetchMetadata.nextEpoch)",
        "connector/fetch/session.py",
        "epoch = 1 if plan.session_epoch == _LAST_EPOCH",
        "epoch = 0 if plan.session_epoch == _LAST_EPOCH",
    ),
    Mutant(
        "a new leader is read without validation",
        "consumers before KIP-320",
        "connector/fetch/progress.py",
        "        return self.offset_epoch != NO_EPOCH and leader_epoch > self.checked_epoch\n",
        "        return False\n",
    ),
    Mutant(
        "the position keeps its first leader epoch",
        "reference 5.2: the epoch is that of the batch last consumed",
        "connector/fetch/commit.py",
        "    progress.on_record_epoch(outcome.leader_epoch)\n",
        "",
    ),
    Mutant(
        "an epoch that ends at the position counts as truncated",
        "off by one in OffsetForLeaderEpoch",
        "connector/fetch/decisions.py",
        "answer.end_offset >= asked.fetch_offset",
        "answer.end_offset > asked.fetch_offset",
    ),
    Mutant(
        "kept records are used under another leader epoch",
        "a buffer that outlives a truncation",
        "connector/fetch/engine.py",
        "!= (progress.fetch_offset, info.leader_epoch, progress.topic_id)",
        "!= (progress.fetch_offset, tail.leader_epoch, progress.topic_id)",
    ),
    Mutant(
        "throttling is ignored",
        "KIP-219: brokers answer at once and clients hold back",
        "connector/fetch/answers.py",
        "        node.retry_at_ms = now_ms + reply.throttle_ms\n",
        "        node.retry_at_ms = now_ms\n",
    ),
    Mutant(
        "leases on a silent broker are kept",
        "KAFKA-14379, sarama #2090",
        "connector/fetch/answers.py",
        "    for topic_partition in state.choices.leases_on(node_id):\n"
        "        state.choices.on_left(topic_partition, now_ms)\n",
        "",
    ),
    Mutant(
        "an older leader that an error names is believed",
        "KIP-951, librdkafka 0146",
        "connector/fetch/view.py",
        "leader_epoch <= known.leader_epoch",
        "leader_epoch == known.leader_epoch",
    ),
    Mutant(
        "metadata of an older epoch is believed",
        "librdkafka 0146",
        "connector/fetch/view.py",
        "    return known is not None and NO_EPOCH < info.leader_epoch < known.leader_epoch\n",
        "    return False\n",
    ),
    Mutant(
        "the leader is asked in the redirectable form for what the follower is late with",
        "reference 11.3: redirect loops",
        "connector/fetch/requests.py",
        "        or now_ms < state.ranges[topic_partition].leader_until_ms\n",
        "",
    ),
)
