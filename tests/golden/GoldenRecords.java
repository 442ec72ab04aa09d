package org.apache.kafka.clients.consumer.internals;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.function.LongPredicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;

/**
 * Writes the golden record batches and what Java's consumer makes of them; PROVENANCE.md tells how to run it.
 *
 * <p>The bytes come from {@link MemoryRecordsBuilder}, and for what compaction leaves from {@link MemoryRecords#filterTo},
 * which is what the log cleaner calls. Nothing of the expected results is written by hand: the bytes are given to the
 * consumer's own {@link CompletedFetch}, in whose package this class stands because it is not public.
 */
public final class GoldenRecords {
    private static final TopicPartition PARTITION = new TopicPartition("golden", 0);
    private static final long CREATED = 1_500_000_000_000L;
    private static final long APPENDED = 1_600_000_000_000L;
    private static final long CLEANED = 1_700_000_000_000L;
    private static final int EPOCH = 7;
    private static final short PRODUCER_EPOCH = 0;
    private static final long NEVER = Long.MAX_VALUE;
    private static final Header[] NO_HEADERS = {};

    private final Path folder;
    private final List<String> cases = new ArrayList<>();

    private GoldenRecords(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws IOException {
        GoldenRecords golden = new GoldenRecords(Path.of(arguments[0]));
        golden.codecs();
        golden.logAppendTime();
        golden.compaction();
        golden.oldFormats();
        golden.format2();
        golden.transactions();
        golden.compactedTransactions();
        String text = golden.cases.stream().collect(Collectors.joining(",\n", "[\n", "\n]\n"));
        Files.writeString(golden.folder.resolve("expected.json"), text);
    }

    // What is written.

    private void codecs() throws IOException {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                if (codec != CompressionType.ZSTD || magic == 2) {
                    write("magic-" + magic + "-" + codec.name, 100,
                        mixture(magic, codec, 100), mixture(magic, codec, 105));
                }
            }
        }
    }

    private void logAppendTime() throws IOException {
        for (byte magic = 1; magic <= 2; magic++) {
            for (CompressionType codec : List.of(CompressionType.NONE, CompressionType.GZIP)) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), magic,
                    Compression.of(codec).build(), TimestampType.LOG_APPEND_TIME, 10, APPENDED, EPOCH);
                appendNumbered(builder, 10, 3);
                write("magic-" + magic + "-log-append-time-" + codec.name, 10, builder.build());
            }
        }
    }

    private void compaction() throws IOException {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : List.of(CompressionType.NONE, CompressionType.GZIP)) {
                // Gaps; a batch that loses its first and last record; one that is emptied (format 2 keeps its header).
                MemoryRecords log = joined(numbered(magic, codec, 20, 6), numbered(magic, codec, 26, 5),
                    numbered(magic, codec, 31, 4), numbered(magic, codec, 35, 3));
                Set<Long> kept = Set.of(20L, 23L, 25L, 27L, 29L, 36L);
                write("magic-" + magic + "-compacted-" + codec.name, 20, cleaned(log, NEVER, kept::contains));
            }
        }
        MemoryRecordsBuilder builder = builder((byte) 2, CompressionType.NONE, 40);
        builder.append(CREATED, bytes("deleted"), null);
        builder.append(CREATED + 5, bytes("kept"), bytes("value"));
        builder.append(CREATED - 5, bytes("deleted before"), null);
        write("delete-horizon", 40, cleaned(builder.build(), 1000, offset -> true));
        write("last-batch-is-empty", 20,
            cleaned(joined(numbered((byte) 2, CompressionType.NONE, 20, 2), numbered((byte) 2, CompressionType.NONE, 22, 9)),
                NEVER, offset -> offset < 22));
    }

    private void oldFormats() throws IOException {
        MemoryRecords zero = numbered((byte) 1, CompressionType.GZIP, 0, 4);
        zero.batches().iterator().next().setLastOffset(0);
        write("magic-1-wrapper-offset-zero", 0, zero);

        write("mixed-magic", 0,
            numbered((byte) 0, CompressionType.NONE, 0, 2), numbered((byte) 0, CompressionType.LZ4, 2, 2),
            numbered((byte) 1, CompressionType.NONE, 4, 2), numbered((byte) 1, CompressionType.SNAPPY, 6, 2),
            numbered((byte) 2, CompressionType.ZSTD, 8, 2), numbered((byte) 1, CompressionType.GZIP, 10, 2));

        for (byte magic = 0; magic <= 1; magic++) {
            write("magic-" + magic + "-wrapper-begins-below-the-fetch-offset", 52,
                numbered(magic, CompressionType.GZIP, 50, 4), numbered(magic, CompressionType.NONE, 54, 1));
            MemoryRecords whole = joined(numbered(magic, CompressionType.GZIP, 50, 4),
                numbered(magic, CompressionType.GZIP, 54, 4));
            write("magic-" + magic + "-cut", 50, cut(whole, 9));
        }
        MemoryRecordsBuilder builder = builder((byte) 1, CompressionType.GZIP, 5);
        builder.append(RecordBatch.NO_TIMESTAMP, bytes("key"), bytes("no timestamp"));
        builder.append(CREATED, bytes("key"), bytes("timestamp"));
        write("magic-1-without-timestamp", 5, builder.build());
    }

    private void format2() throws IOException {
        MemoryRecordsBuilder builder = builder((byte) 2, CompressionType.LZ4, 1);
        builder.append(CREATED, bytes("one"), bytes("1"), headers("a", "1"));
        builder.append(CREATED, bytes("none"), bytes("2"), NO_HEADERS);
        builder.append(CREATED, bytes("several"), bytes("3"), headers("a", "1", "b", null, "a", "", "", "2"));
        builder.append(CREATED, bytes("text"), bytes("4"), headers("größe", "\u00fc", "\ud83d\udc80", "\u0000"));
        write("headers", 1, builder.build());

        builder = builder((byte) 2, CompressionType.NONE, 5);
        builder.append(RecordBatch.NO_TIMESTAMP, bytes("key"), bytes("no timestamp"));
        write("magic-2-without-timestamp", 5, builder.build());

        write("batch-begins-below-the-fetch-offset", 52,
            numbered((byte) 2, CompressionType.SNAPPY, 50, 4), numbered((byte) 2, CompressionType.NONE, 54, 1));
        write("cut", 50, cut(joined(numbered((byte) 2, CompressionType.ZSTD, 50, 4),
            numbered((byte) 2, CompressionType.NONE, 54, 4)), 9));

        ByteBuffer control = ByteBuffer.allocate(256);
        MemoryRecords.withLeaderChangeMessage(2, CREATED, EPOCH + 1, control, new LeaderChangeMessage().setLeaderId(1));
        control.flip();
        write("leader-change-in-between", 0, numbered((byte) 2, CompressionType.NONE, 0, 2),
            MemoryRecords.readableRecords(control), numbered((byte) 2, CompressionType.NONE, 3, 2));
    }

    private void transactions() throws IOException {
        write("transaction-committed", 0, aborted(), transactional(1, 0, 3), commit(1, 3), plain(4, 1));
        write("transaction-committed-list-null", 0, transactional(1, 0, 3), commit(1, 3));
        write("transaction-aborted", 0, aborted(1, 0), transactional(1, 0, 3), abort(1, 3), plain(4, 1));
        write("transactions-interleaved", 0, aborted(2, 2, 1, 7),
            transactional(1, 0, 2), transactional(2, 2, 2), plain(4, 1), transactional(1, 5, 1), commit(1, 6),
            transactional(1, 7, 2), transactional(2, 9, 1), abort(2, 10), transactional(2, 11, 1), abort(1, 12),
            commit(2, 13), plain(14, 1));
        write("transaction-within-the-time-of-another", 0, aborted(1, 0),
            transactional(1, 0, 1), transactional(2, 1, 1), commit(2, 2), transactional(3, 3, 1), commit(3, 4),
            transactional(1, 5, 1), abort(1, 6));
        write("aborted-within-the-time-of-a-committed", 0, aborted(2, 1),
            transactional(1, 0, 1), transactional(2, 1, 1), abort(2, 2), transactional(1, 3, 1), commit(1, 4));
        write("aborted-again-and-again", 0, aborted(1, 6, 1, 0, 1, 3),
            transactional(1, 0, 2), abort(1, 2), transactional(1, 3, 2), abort(1, 5), transactional(1, 6, 1),
            abort(1, 7), transactional(1, 8, 1), commit(1, 9));
        write("abort-without-data", 0, aborted(), plain(0, 2), abort(1, 2), transactional(1, 3, 2), commit(1, 5));
        write("abort-without-data-is-listed", 0, aborted(1, 2), plain(0, 2), abort(1, 2), transactional(1, 3, 2),
            commit(1, 5));
        write("aborted-and-its-marker-not-included", 0, aborted(1, 2), transactional(2, 0, 2), transactional(1, 2, 2),
            plain(4, 2), commit(2, 6), transactional(1, 7, 2));
        write("idempotent-is-not-transactional", 0, aborted(1, 0), transactional(1, 0, 1), idempotent(1, 1, 2),
            abort(1, 3), idempotent(1, 4, 1));
        write("list-unsorted-and-beyond-the-data", 0, aborted(5, 900, 2, 3, 4, 500, 1, 0),
            transactional(1, 0, 2), abort(1, 2), transactional(2, 3, 1), transactional(4, 4, 1), abort(2, 5),
            commit(4, 6), transactional(5, 7, 1), commit(5, 8));
        write("aborted-transaction-begins-below-the-fetch-offset", 12, aborted(1, 3),
            transactional(1, 10, 4), transactional(2, 14, 1), abort(1, 15), transactional(1, 16, 1), commit(2, 17),
            commit(1, 18));
        write("batch-begins-before-the-listed-first-offset", 0, aborted(1, 2), transactional(1, 0, 4), abort(1, 4),
            transactional(1, 5, 1), commit(1, 6));
        write("aborted-compressed", 0, aborted(1, 0), transactional(1, 0, 3, CompressionType.ZSTD),
            marker(1, 3, ControlRecordType.ABORT, CompressionType.GZIP), transactional(1, 4, 3, CompressionType.LZ4),
            marker(1, 7, ControlRecordType.COMMIT, CompressionType.SNAPPY));
        write("old-formats-between-aborted-batches", 0, aborted(1, 0), transactional(1, 0, 1),
            numbered((byte) 0, CompressionType.GZIP, 1, 2), numbered((byte) 1, CompressionType.NONE, 3, 2),
            transactional(1, 5, 1), abort(1, 6));
    }

    private void compactedTransactions() throws IOException {
        MemoryRecords log = joined(transactional(1, 0, 3), transactional(2, 3, 2), abort(1, 5), transactional(1, 6, 2),
            commit(2, 8), commit(1, 9), transactional(1, 10, 2), abort(1, 12));
        write("compacted-aborted-data-is-gone", 0, aborted(1, 10, 1, 0),
            cleaned(log, NEVER, offset -> offset > 2));
        write("compacted-gaps-in-aborted-data", 0, aborted(1, 0, 1, 10),
            cleaned(log, NEVER, offset -> offset != 1 && offset != 2 && offset != 4 && offset != 11));
        write("compacted-markers-with-delete-horizon", 0, aborted(1, 0, 1, 10), cleaned(log, 1000, offset -> true));
        // A marker whose record is gone ends nothing, so whoever is listed stays aborted.
        write("compacted-control-batch-is-empty", 0, aborted(1, 0),
            cleaned(joined(transactional(1, 0, 2), abort(1, 2), transactional(1, 3, 1), plain(4, 1), commit(1, 5)), NEVER,
                offset -> offset != 2));
        write("compacted-control-batch-is-empty-and-alone", 2, aborted(),
            cleaned(joined(abort(1, 2), transactional(1, 3, 1), commit(1, 4)), NEVER, offset -> offset != 2));
    }

    // How it is written.

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Header[] headers(String... keysAndValues) {
        Header[] headers = new Header[keysAndValues.length / 2];
        for (int i = 0; i < headers.length; i++) {
            String value = keysAndValues[2 * i + 1];
            headers[i] = new RecordHeader(keysAndValues[2 * i], value == null ? null : bytes(value));
        }
        return headers;
    }

    private static long[][] aborted(long... producerIdsAndFirstOffsets) {
        long[][] listed = new long[producerIdsAndFirstOffsets.length / 2][];
        for (int i = 0; i < listed.length; i++) {
            listed[i] = Arrays.copyOfRange(producerIdsAndFirstOffsets, 2 * i, 2 * i + 2);
        }
        return listed;
    }

    private static MemoryRecordsBuilder builder(byte magic, CompressionType codec, long baseOffset) {
        return MemoryRecords.builder(ByteBuffer.allocate(4096), magic, Compression.of(codec).build(),
            TimestampType.CREATE_TIME, baseOffset, RecordBatch.NO_TIMESTAMP, EPOCH);
    }

    private static void appendNumbered(MemoryRecordsBuilder builder, long baseOffset, int count) {
        for (long offset = baseOffset; offset < baseOffset + count; offset++) {
            builder.append(CREATED + offset, bytes("k" + offset), bytes("v" + offset));
        }
    }

    private static MemoryRecords numbered(byte magic, CompressionType codec, long baseOffset, int count) {
        MemoryRecordsBuilder builder = builder(magic, codec, baseOffset);
        appendNumbered(builder, baseOffset, count);
        return builder.build();
    }

    private static MemoryRecords plain(long baseOffset, int count) {
        return numbered((byte) 2, CompressionType.NONE, baseOffset, count);
    }

    /** Null and empty keys and values, bytes that are no text, timestamps that do not ascend. */
    private static MemoryRecords mixture(byte magic, CompressionType codec, long baseOffset) {
        MemoryRecordsBuilder builder = builder(magic, codec, baseOffset);
        builder.append(CREATED + baseOffset, bytes("key"), bytes("some text, some text, some text, " + baseOffset));
        builder.append(CREATED + 1000, null, new byte[0]);
        builder.append(CREATED - 1000, new byte[0], null);
        builder.append(CREATED, null, (byte[]) null);
        builder.append(CREATED, new byte[] {(byte) 0xff, 0, (byte) 0x80}, bytes("v".repeat(40)));
        return builder.build();
    }

    private static MemoryRecords ofProducer(long producerId, long baseOffset, int count, CompressionType codec,
                                            boolean isTransactional) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(4096), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(codec).build(), TimestampType.CREATE_TIME, baseOffset, RecordBatch.NO_TIMESTAMP, producerId,
            PRODUCER_EPOCH, (int) baseOffset, isTransactional, false, EPOCH, 4096);
        appendNumbered(builder, baseOffset, count);
        return builder.build();
    }

    private static MemoryRecords transactional(long producerId, long baseOffset, int count) {
        return ofProducer(producerId, baseOffset, count, CompressionType.NONE, true);
    }

    private static MemoryRecords transactional(long producerId, long baseOffset, int count, CompressionType codec) {
        return ofProducer(producerId, baseOffset, count, codec, true);
    }

    private static MemoryRecords idempotent(long producerId, long baseOffset, int count) {
        return ofProducer(producerId, baseOffset, count, CompressionType.NONE, false);
    }

    private static MemoryRecords commit(long producerId, long offset) {
        return marker(producerId, offset, ControlRecordType.COMMIT, CompressionType.NONE);
    }

    private static MemoryRecords abort(long producerId, long offset) {
        return marker(producerId, offset, ControlRecordType.ABORT, CompressionType.NONE);
    }

    private static MemoryRecords marker(long producerId, long offset, ControlRecordType type, CompressionType codec) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(256), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(codec).build(), TimestampType.CREATE_TIME, offset, RecordBatch.NO_TIMESTAMP, producerId,
            PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, true, true, EPOCH, 256);
        builder.appendEndTxnMarker(CREATED + offset, new EndTransactionMarker(type, 0));
        return builder.build();
    }

    private static MemoryRecords joined(MemoryRecords... parts) {
        ByteBuffer all = ByteBuffer.allocate(Stream.of(parts).mapToInt(MemoryRecords::sizeInBytes).sum());
        for (MemoryRecords part : parts) {
            all.put(part.buffer().duplicate());
        }
        all.flip();
        return MemoryRecords.readableRecords(all);
    }

    private static MemoryRecords cut(MemoryRecords whole, int byteCount) {
        ByteBuffer buffer = whole.buffer().duplicate();
        buffer.limit(buffer.limit() - byteCount);
        return MemoryRecords.readableRecords(buffer);
    }

    /** What the log cleaner leaves: records that are kept, and of a batch without any its header (since format 2). */
    private static MemoryRecords cleaned(MemoryRecords log, long deleteRetentionMs, LongPredicate kept) {
        ByteBuffer clean = ByteBuffer.allocate(8192);
        log.filterTo(PARTITION, new MemoryRecords.RecordFilter(CLEANED, deleteRetentionMs) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                boolean isMarker = deleteRetentionMs != NEVER && batch.isControlBatch();
                boolean canBeEmpty = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
                return new BatchRetentionResult(
                    canBeEmpty ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY, isMarker);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return kept.test(record.offset());
            }
        }, clean, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        clean.flip();
        return MemoryRecords.readableRecords(clean);
    }

    // What Java's consumer reads.

    private void write(String name, long fetchOffset, MemoryRecords... parts) throws IOException {
        write(name, fetchOffset, null, parts);
    }

    private void write(String name, long fetchOffset, long[][] aborted, MemoryRecords... parts) throws IOException {
        ByteBuffer buffer = joined(parts).buffer();
        byte[] content = new byte[buffer.remaining()];
        buffer.get(content);
        Files.write(folder.resolve(name + ".bin"), content);

        Reading everything = new Reading(content, fetchOffset, aborted, IsolationLevel.READ_UNCOMMITTED);
        Reading committed = new Reading(content, fetchOffset, aborted, IsolationLevel.READ_COMMITTED);
        if (everything.nextOffset != committed.nextOffset) {
            throw new IllegalStateException(name + ": positions differ between the isolation levels");
        }
        String listed = aborted == null ? "null" : Stream.of(aborted).map(Arrays::toString).toList().toString();
        cases.add(" {\"name\": " + quoted(name) + ", \"fetch_offset\": " + fetchOffset
            + ", \"aborted_transactions\": " + listed
            + ",\n  \"next_offset\": " + everything.nextOffset + ", \"last_leader_epoch\": " + everything.lastEpoch
            + ", \"committed_offsets\": " + committed.rows.stream().map(ConsumerRecord::offset).toList()
            + ",\n  \"rows\": " + everything.rows.stream().map(GoldenRecords::row)
                .collect(Collectors.joining(",\n   ", "[\n   ", "]}")));
    }

    private static final class Reading {
        final List<ConsumerRecord<byte[], byte[]>> rows = new ArrayList<>();
        final long nextOffset;
        final int lastEpoch;

        Reading(byte[] content, long fetchOffset, long[][] aborted, IsolationLevel isolationLevel) {
            FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
                .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(content)))
                .setAbortedTransactions(aborted == null ? null : Stream.of(aborted)
                    .map(each -> new FetchResponseData.AbortedTransaction().setProducerId(each[0]).setFirstOffset(each[1]))
                    .toList());
            LogContext context = new LogContext();
            SubscriptionState subscriptions = new SubscriptionState(context, OffsetResetStrategy.NONE);
            subscriptions.assignFromUser(Set.of(PARTITION));
            FetchMetricsManager metrics = new FetchMetricsManager(new Metrics(), new FetchMetricsRegistry());
            CompletedFetch fetch = new CompletedFetch(context.logger(CompletedFetch.class), subscriptions,
                BufferSupplier.NO_CACHING, PARTITION, data, new FetchMetricsAggregator(metrics, Set.of(PARTITION)),
                fetchOffset, (short) 16);
            FetchConfig config = new FetchConfig(1, 1 << 20, 0, 1 << 20, 500, true, "", isolationLevel);
            Deserializers<byte[], byte[]> deserializers =
                new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer());
            while (!fetch.isConsumed()) {
                rows.addAll(fetch.fetchRecords(config, deserializers, 500));
            }
            nextOffset = fetch.nextFetchOffset();
            lastEpoch = fetch.lastEpoch().orElse(-1);
        }
    }

    /** Offset, timestamp, timestamp type, key, value, headers. */
    private static String row(ConsumerRecord<byte[], byte[]> record) {
        String headers = Stream.of(record.headers().toArray())
            .map(each -> "[" + quoted(each.key()) + ", " + hex(each.value()) + "]")
            .collect(Collectors.joining(", ", "[", "]"));
        return "[" + record.offset() + ", " + record.timestamp() + ", " + record.timestampType().id + ", "
            + hex(record.key()) + ", " + hex(record.value()) + ", " + headers + "]";
    }

    private static String hex(byte[] content) {
        return content == null ? "null" : "\"" + HexFormat.of().formatHex(content) + "\"";
    }

    /** JSON, in ASCII. */
    private static String quoted(String text) {
        StringBuilder written = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean isPlain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            written.append(isPlain ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return written.append('"').toString();
    }
}
