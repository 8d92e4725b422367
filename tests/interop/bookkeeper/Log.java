import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** A log of numbered entries that some system keeps in ledgers. run() is what the tests do with it. */
abstract class Log {
    private static final int SAID_EVERY = 50;
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicInteger failures = new AtomicInteger();
    /** How many entries there are once the writer has ended. */
    private volatile long total = Long.MAX_VALUE;

    /** Reads entries in their order. */
    interface Tail {
        /** Returns the next entry; null when none came for a while. */
        byte[] next() throws Exception;
    }

    /** Adds an entry; the stage completes when it is acknowledged. */
    abstract CompletionStage<?> append(long number, byte[] payload);

    /** Begins to read at the first entry, while the log is written. */
    abstract Tail follow() throws Exception;

    /** Ends writing and following. */
    abstract void close() throws Exception;

    /** Opens the log anew and reads it from the first entry on. */
    abstract Tail again() throws Exception;

    /** Says what the system itself keeps of the reader that has followed; nothing by default. */
    void sayFollowed() throws Exception {}

    /** Writes and follows until a line comes on standard input, then reads everything again. */
    final void run(Peer peer) throws Exception {
        CompletableFuture<Void> isOver = CompletableFuture.runAsync(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        });
        Tail tail = follow();
        CompletableFuture<Long> followed = new CompletableFuture<>();
        new Thread(() -> {
            try {
                followed.complete(read(tail));
            } catch (Throwable error) {
                followed.completeExceptionally(error);
            }
        }).start();
        long count = write(peer, isOver);
        total = count;
        Peer.say("followed", followed.get(), "of", count);
        close();
        Peer.say("read_again", read(again()), "of", count);
        sayFollowed();
        Peer.say("written", count, "acknowledged", acknowledged.get(), "failed", failures.get());
        Runtime.getRuntime().halt(0);
    }

    private long write(Peer peer, CompletableFuture<Void> isOver) throws Exception {
        int size = (int) peer.number("size", 400);
        int window = (int) peer.number("window", 20);
        Semaphore free = new Semaphore(window);
        long number = 0;
        while (!isOver.isDone() && failures.get() == 0) {
            free.acquire();
            append(number, Peer.payload(number, size)).whenComplete((found, error) -> {
                if (error != null) {
                    failures.incrementAndGet();
                    error.printStackTrace();
                } else if (acknowledged.incrementAndGet() % SAID_EVERY == 0) {
                    Peer.say("acknowledged", acknowledged.get());
                }
                free.release();
            });
            number++;
            Thread.sleep(peer.number("pace_ms", 5));
        }
        free.acquire(window);
        return number;
    }

    /** Returns how many entries came, each the right one; stops at the first that is not. */
    private long read(Tail tail) throws Exception {
        long number = 0;
        while (number < total && failures.get() == 0) {
            byte[] found = tail.next();
            if (found != null) {
                if (!Peer.isPayload(number, found)) {
                    throw new IllegalStateException("entry " + number + " is another");
                }
                number++;
            }
        }
        return number;
    }
}
