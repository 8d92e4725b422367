import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;

/**
 * One warm client that does what lines on standard input say, and answers each with a line of JSON:
 * "add SIZE COUNT WINDOW", "tail SIZE COUNT", "left SIZE COUNT" (write, leave open),
 * "recover LEDGER", "end".
 */
public final class Bench {
    private static final int ENSEMBLE = 3;
    private static final int ACK_QUORUM = 2;
    private static final long PACE_MS = 5;

    private final Peer peer;
    private final BookKeeper client;

    private Bench(Peer peer) throws Exception {
        this.peer = peer;
        this.client = peer.connect();
    }

    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(new Peer(arguments));
        Peer.say("ready", true);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            if (words[0].equals("add")) {
                bench.add(Integer.parseInt(words[1]), Integer.parseInt(words[2]),
                        Integer.parseInt(words[3]));
            } else if (words[0].equals("tail")) {
                bench.tail(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            } else if (words[0].equals("left")) {
                bench.left(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            } else if (words[0].equals("recover")) {
                bench.recover(Long.parseLong(words[1]));
            } else {
                break;
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private LedgerHandle create() throws Exception {
        return client.createLedger(
                ENSEMBLE, ENSEMBLE, ACK_QUORUM, peer.digest(), peer.password());
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void write(LedgerHandle ledger, byte[] data, int count, int window, long[] taken)
            throws Exception {
        Semaphore free = new Semaphore(window);
        AtomicInteger errors = new AtomicInteger();
        for (int i = 0; i < count; i++) {
            free.acquire();
            int number = i;
            long start = System.nanoTime();
            ledger.asyncAddEntry(data, (rc, handle, entry, context) -> {
                if (rc != BKException.Code.OK) {
                    errors.incrementAndGet();
                }
                if (taken != null) {
                    taken[number] = System.nanoTime() - start;
                }
                free.release();
            }, null);
        }
        free.acquire(window);
        if (errors.get() > 0) {
            throw new IllegalStateException(errors.get() + " adds failed");
        }
    }

    private void add(int size, int count, int window) throws Exception {
        LedgerHandle ledger = create();
        byte[] data = Peer.payload(0, size);
        long[] taken = new long[count];
        long cpu = cpuNanos();
        long start = System.nanoTime();
        write(ledger, data, count, window, taken);
        double seconds = (System.nanoTime() - start) / 1e9;
        double cpuSeconds = (cpuNanos() - cpu) / 1e9;
        ledger.close();
        client.deleteLedger(ledger.getId());
        report(taken, seconds, cpuSeconds);
    }

    private static void report(long[] taken, double seconds, double cpuSeconds) {
        Arrays.sort(taken);
        Peer.say("seconds", seconds, "adds_per_s", taken.length / seconds,
                "p50_ms", taken[taken.length / 2] / 1e6,
                "p99_ms", taken[taken.length * 99 / 100] / 1e6,
                "cpu_us_per_add", cpuSeconds * 1e6 / taken.length);
    }

    /**
     * A writer adds every PACE_MS, a reader follows by long polls: times from the start of the add
     * that carries an entry's confirmation (the next one) to the arrival of the entry.
     */
    private void tail(int size, int count) throws Exception {
        LedgerHandle ledger = create();
        byte[] data = Peer.payload(0, size);
        long[] begun = new long[count + 1];
        long[] taken = new long[count];
        // Before the first entry a bookie knows no such ledger, and answers at once.
        ledger.addEntry(data);
        Thread reading = new Thread(() -> {
            try {
                follow(ledger.getId(), begun, taken);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        reading.start();
        for (int i = 1; i <= count; i++) {
            Thread.sleep(PACE_MS);
            begun[i] = System.nanoTime();
            ledger.addEntry(data);
        }
        reading.join();
        ledger.close();
        client.deleteLedger(ledger.getId());
        report(taken, 1, 0);
    }

    private void follow(long id, long[] begun, long[] taken) throws Exception {
        LedgerHandle reader = client.openLedgerNoRecovery(id, peer.digest(), peer.password());
        for (int next = 0; next < taken.length;) {
            try (LastConfirmedAndEntry found =
                    reader.readLastAddConfirmedAndEntryAsync(next, 1000, false).get()) {
                if (found.hasEntry()) {
                    taken[next] = System.nanoTime() - begun[next + 1];
                    next++;
                }
            }
        }
    }

    private void left(int size, int count) throws Exception {
        LedgerHandle ledger = create();
        write(ledger, Peer.payload(0, size), count, 1000, null);
        Peer.say("ledger", ledger.getId());
    }

    private void recover(long id) throws Exception {
        long start = System.nanoTime();
        LedgerHandle ledger = client.openLedger(id, peer.digest(), peer.password());
        double seconds = (System.nanoTime() - start) / 1e9;
        Peer.say("seconds", seconds, "last", ledger.getLastAddConfirmed());
        ledger.close();
        client.deleteLedger(id);
    }
}
