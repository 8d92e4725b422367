import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;

/**
 * Creates a ledger, adds entries, says each acknowledged one. With hold=1 it waits for a line on
 * standard input before it closes; with close=0 it ends like a crash, the ledger left open.
 */
public final class Writer {
    private Writer() {}

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments);
        BookKeeper client = peer.connect();
        LedgerHandle ledger = client.createLedger(
                (int) peer.number("ensemble", 3), (int) peer.number("write_quorum", 3),
                (int) peer.number("ack_quorum", 2), peer.digest(), peer.password());
        Peer.say("ledger", ledger.getId());
        long count = peer.number("count", 100);
        int size = (int) peer.number("size", 100);
        long paceMs = peer.number("pace_ms", 0);
        int window = (int) peer.number("window", 100);
        Semaphore free = new Semaphore(window);
        AtomicInteger errors = new AtomicInteger();
        for (long i = 0; i < count && errors.get() == 0; i++) {
            free.acquire();
            ledger.asyncAddEntry(Peer.payload(i, size), (rc, handle, entry, context) -> {
                if (rc == BKException.Code.OK) {
                    Peer.say("added", entry);
                } else if (errors.getAndIncrement() == 0) {
                    Peer.say("error", rc, "message", BKException.getMessage(rc));
                }
                free.release();
            }, null);
            if (paceMs > 0) {
                Thread.sleep(paceMs);
            }
        }
        free.acquire(window);
        Peer.say("written", count, "lac", ledger.getLastAddConfirmed());
        if (peer.is("hold")) {
            System.in.read();
        }
        if (peer.number("close", 1) == 0) {
            Runtime.getRuntime().halt(0);
        }
        try {
            ledger.close();
            Peer.say("closed", ledger.getLastAddConfirmed(), "length", ledger.getLength());
        } catch (BKException error) {
            Peer.say("close_error", error.getCode(), "message", error.getMessage());
        }
        client.close();
        Runtime.getRuntime().halt(0);
    }
}
