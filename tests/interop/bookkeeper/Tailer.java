import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;

/** Follows an open ledger by long polls; says each entry, until `count` of them or its end. */
public final class Tailer {
    private Tailer() {}

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        BookKeeper client = peer.connect();
        LedgerHandle ledger = client.openLedgerNoRecovery(
                peer.number("ledger", -1), peer.digest(), peer.password());
        Peer.say("opened", ledger.getId());
        long next = 0;
        long count = peer.number("count", Long.MAX_VALUE);
        while (next < count && !(ledger.isClosed() && next > ledger.getLastAddConfirmed())) {
            try (LastConfirmedAndEntry found = ledger
                    .readLastAddConfirmedAndEntryAsync(next, peer.number("wait_ms", 2000), false)
                    .get()) {
                if (found.hasEntry()) {
                    byte[] data = found.getEntry().getEntryBytes();
                    Peer.say("entry", next, "lac", found.getLastAddConfirmed(),
                            "is_right", Peer.isPayload(next, data));
                    next++;
                } else {
                    Peer.say("lac", found.getLastAddConfirmed());
                }
            } catch (ExecutionException error) {
                Peer.say("error", -1, "message", String.valueOf(error.getCause()));
                break;
            }
        }
        Peer.say("seen", next, "is_closed", ledger.isClosed());
        client.close();
        Runtime.getRuntime().halt(0);
    }
}
