import io.netty.buffer.ByteBuf;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.AsyncCallbacks.AddEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactory;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/** A managed ledger of Pulsar, in ledgers of some dozens of entries each, with two cursors. */
public final class PulsarLog extends Log {
    private final Peer peer;
    private final MetadataStoreExtended store;
    private ManagedLedgerFactory factory;
    private ManagedLedger ledger;

    private PulsarLog(Peer peer) throws Exception {
        this.peer = peer;
        store = MetadataStoreExtended.create(
                "zk:" + peer.text("zookeeper", null), MetadataStoreConfig.builder().build());
        open();
        // It keeps the entries that the other one has deleted for itself.
        ledger.openCursor("again", InitialPosition.Earliest);
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        new PulsarLog(peer).run(peer);
    }

    private void open() throws Exception {
        ClientConfiguration client = peer.settings();
        client.setUseV2WireProtocol(true); // as Pulsar's brokers do
        ManagedLedgerFactoryConfig uncached = new ManagedLedgerFactoryConfig();
        uncached.setMaxCacheSize(0);
        factory = new ManagedLedgerFactoryImpl(store, client, uncached);
        ManagedLedgerConfig settings = new ManagedLedgerConfig();
        settings.setEnsembleSize(3).setWriteQuorumSize(3).setAckQuorumSize(2);
        settings.setMetadataEnsembleSize(3);
        settings.setMetadataWriteQuorumSize(3);
        settings.setMetadataAckQuorumSize(2);
        settings.setDigestType(DigestType.CRC32C);
        settings.setMaxEntriesPerLedger(50);
        settings.setMinimumRolloverTime(0, TimeUnit.SECONDS);
        settings.setThrottleMarkDelete(0);
        ledger = factory.open(peer.text("name", "orders"), settings);
    }

    @Override
    CompletionStage<?> append(long number, byte[] payload) {
        CompletableFuture<Position> added = new CompletableFuture<>();
        ledger.asyncAddEntry(payload, new AddEntryCallback() {
            @Override
            public void addComplete(Position position, ByteBuf data, Object context) {
                added.complete(position);
            }

            @Override
            public void addFailed(ManagedLedgerException error, Object context) {
                added.completeExceptionally(error);
            }
        }, null);
        return added;
    }

    @Override
    Tail follow() throws Exception {
        return tail(ledger.openCursor("follower", InitialPosition.Earliest), true);
    }

    @Override
    void close() throws Exception {
        ledger.close();
        factory.shutdown();
    }

    @Override
    Tail again() throws Exception {
        open();
        Peer.say("segments", ledger.getLedgersInfo().size());
        return tail(ledger.openCursor("again"), false);
    }

    /** How many entries the cursor that has followed has left, as it was stored. */
    @Override
    void sayFollowed() throws Exception {
        Peer.say("backlog", ledger.openCursor("follower").getNumberOfEntriesInBacklog(true));
    }

    private static Tail tail(ManagedCursor cursor, boolean isDeleting) {
        Deque<byte[]> ready = new ArrayDeque<>();
        return () -> {
            if (ready.isEmpty()) {
                for (Entry entry : cursor.readEntries(20)) {
                    ready.add(entry.getData());
                    if (isDeleting) {
                        cursor.markDelete(entry.getPosition());
                    }
                    entry.release();
                }
                if (ready.isEmpty()) {
                    Thread.sleep(20);
                }
            }
            return ready.poll();
        };
    }
}
