import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;

/** Opens a ledger, with recovery when recover=1, and reads all that is confirmed in it. */
public final class Reader {
    private Reader() {}

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        BookKeeper client = peer.connect();
        long start = System.nanoTime();
        try {
            long id = peer.number("ledger", -1);
            LedgerHandle ledger = peer.is("recover")
                    ? client.openLedger(id, peer.digest(), peer.password())
                    : client.openLedgerNoRecovery(id, peer.digest(), peer.password());
            double openMs = (System.nanoTime() - start) / 1e6;
            long last = ledger.getLastAddConfirmed();
            List<Object> segments = new ArrayList<>();
            for (Map.Entry<Long, ? extends List<?>> part
                    : ledger.getLedgerMetadata().getAllEnsembles().entrySet()) {
                List<Object> segment = new ArrayList<>();
                segment.add(part.getKey());
                part.getValue().forEach(bookie -> segment.add(bookie.toString()));
                segments.add(segment);
            }
            Peer.say("lac", last, "length", ledger.getLength(), "is_closed", ledger.isClosed(),
                    "segments", segments, "open_ms", openMs);
            long first = peer.number("first", 0);
            long stop = peer.is("unconfirmed") ? peer.number("last", last) : last;
            long wrong = 0;
            long bytes = 0;
            long read = 0;
            for (long from = first; from <= stop; from += 1000) {
                long to = Math.min(stop, from + 999);
                Enumeration<LedgerEntry> entries = peer.is("unconfirmed")
                        ? ledger.readUnconfirmedEntries(from, to) : ledger.readEntries(from, to);
                while (entries.hasMoreElements()) {
                    LedgerEntry entry = entries.nextElement();
                    byte[] data = entry.getEntry();
                    wrong += Peer.isPayload(entry.getEntryId(), data) ? 0 : 1;
                    bytes += data.length;
                    read++;
                }
            }
            Peer.say("read", read, "bytes", bytes, "wrong", wrong);
        } catch (BKException error) {
            Peer.say("error", error.getCode(), "message", error.getMessage());
        }
        client.close();
        Runtime.getRuntime().halt(0);
    }
}
