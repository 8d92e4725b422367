import java.net.URI;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.distributedlog.DLSN;
import org.apache.distributedlog.DistributedLogConfiguration;
import org.apache.distributedlog.LogRecord;
import org.apache.distributedlog.LogRecordWithDLSN;
import org.apache.distributedlog.api.AsyncLogReader;
import org.apache.distributedlog.api.AsyncLogWriter;
import org.apache.distributedlog.api.DistributedLogManager;
import org.apache.distributedlog.api.namespace.Namespace;
import org.apache.distributedlog.api.namespace.NamespaceBuilder;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.metadata.DLMetadata;

/** One log of DistributedLog, in log segments of some dozens of entries each. */
public final class DistributedLog extends Log {
    private static final String NAME = "orders";
    private final Namespace namespace;
    private final DistributedLogManager log;
    private final AsyncLogWriter writer;
    private AsyncLogReader reader;

    private DistributedLog(Peer peer) throws Exception {
        String zookeeper = peer.text("zookeeper", null);
        String root = peer.text("root", null);
        URI uri = URI.create("distributedlog://" + zookeeper + root + "-distributedlog");
        DLMetadata.create(new BKDLConfig(zookeeper, root)).create(uri);
        DistributedLogConfiguration settings = new DistributedLogConfiguration()
                .setEnsembleSize(3).setWriteQuorumSize(3).setAckQuorumSize(2)
                .setOutputBufferSize(0).setImmediateFlushEnabled(true)
                .setLogSegmentRollingIntervalMinutes(0).setMaxLogSegmentBytes(20_000)
                .setLogSegmentRollingConcurrency(-1) // else one a minute
                .setBKClientWriteTimeout(30);
        namespace = NamespaceBuilder.newBuilder().conf(settings).uri(uri).build();
        namespace.createLog(NAME);
        log = namespace.openLog(NAME);
        writer = log.openAsyncLogWriter().get();
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        new DistributedLog(peer).run(peer);
    }

    @Override
    CompletionStage<?> append(long number, byte[] payload) {
        return writer.write(new LogRecord(number, payload));
    }

    @Override
    Tail follow() throws Exception {
        reader = log.openAsyncLogReader(DLSN.InitialDLSN).get();
        return tail(reader);
    }

    @Override
    void close() throws Exception {
        writer.asyncClose().get();
        reader.asyncClose().get();
        log.close();
    }

    @Override
    Tail again() throws Exception {
        DistributedLogManager anew = namespace.openLog(NAME);
        Peer.say("segments", anew.getLogSegments().size());
        return tail(anew.openAsyncLogReader(DLSN.InitialDLSN).get());
    }

    private static Tail tail(AsyncLogReader from) {
        return new Tail() {
            private CompletableFuture<LogRecordWithDLSN> coming = from.readNext();

            @Override
            public byte[] next() throws Exception {
                try {
                    byte[] found = coming.get(100, TimeUnit.MILLISECONDS).getPayload();
                    coming = from.readNext();
                    return found;
                } catch (TimeoutException error) {
                    return null;
                }
            }
        };
    }
}
