import herddb.jdbc.HerdDBDataSource;
import herddb.model.TableSpace;
import herddb.server.Server;
import herddb.server.ServerConfiguration;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A node of a HerdDB cluster, or its client: "node DIRECTORY PORT ZOOKEEPER TIMEOUT_MS ID",
 * "client ZOOKEEPER TIMEOUT_MS". A ledger lies on three bookies, of which two acknowledge an entry;
 * the rest is as HerdDB has it by default. A client does what lines on standard input say, as
 * cluster_client.py does, and answers each with a line of JSON. Connections are threads.
 */
public final class HerdDbCluster {
    private static final String ROOT = "/herd";
    private static final int BOOT_MS = 120_000;
    private static final long LOOK_MS = 200;
    private static final long ANSWER_MS = 30_000;
    private static final int TRIES = 5;
    private static final int LOADING_THREADS = 32;
    private static final double GAP_S = 0.5;

    private final HerdDBDataSource source = new HerdDBDataSource();
    private final List<Connection> connections = new ArrayList<>();
    private final AtomicLong ids = new AtomicLong(1_000_000_000L);
    private final AtomicLong failed = new AtomicLong();
    private volatile boolean isInserting;

    private HerdDbCluster(String zookeeper, String timeoutMs) {
        source.setUrl("jdbc:herddb:zookeeper:" + zookeeper + ROOT
                + "?client.zookeeper.session.timeout=" + timeoutMs
                + "&client.timeout=" + ANSWER_MS);
        source.setMaxActive(100);
        source.setWaitForTableSpace(TableSpace.DEFAULT);
        source.setWaitForTableSpaceTimeout(BOOT_MS);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("node")) {
            run(arguments);
            return;
        }
        HerdDbCluster client = new HerdDbCluster(arguments[1], arguments[2]);
        client.connection(0);
        say("{\"ready\": 1}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer = client.answer(line.trim().split(" "));
            if (answer != null) {
                say("{\"answer\": " + answer + "}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] arguments) throws Exception {
        ServerConfiguration settings = new ServerConfiguration(Paths.get(arguments[1]));
        settings.set(ServerConfiguration.PROPERTY_MODE, ServerConfiguration.PROPERTY_MODE_CLUSTER);
        settings.set(ServerConfiguration.PROPERTY_NODEID, arguments[5]);
        settings.set(ServerConfiguration.PROPERTY_HOST, HerdDb.HOST);
        settings.set(ServerConfiguration.PROPERTY_PORT, Integer.parseInt(arguments[2]));
        settings.set(ServerConfiguration.PROPERTY_ZOOKEEPER_ADDRESS, arguments[3]);
        settings.set(ServerConfiguration.PROPERTY_ZOOKEEPER_PATH, ROOT);
        settings.set(ServerConfiguration.PROPERTY_ZOOKEEPER_SESSIONTIMEOUT,
                Integer.parseInt(arguments[4]));
        settings.set(ServerConfiguration.PROPERTY_BOOKKEEPER_ENSEMBLE, 3);
        settings.set(ServerConfiguration.PROPERTY_BOOKKEEPER_WRITEQUORUMSIZE, 3);
        settings.set(ServerConfiguration.PROPERTY_BOOKKEEPER_ACKQUORUMSIZE, 2);
        Server server = new Server(settings);
        server.start();
        say("{\"ready\": 1}");
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    /** Do what a line says; null: it answers later, by itself. */
    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "replicate":
                return replicate(Integer.parseInt(words[1]), Long.parseLong(words[2]));
            case "leader":
                return '"' + leader() + '"';
            case "load":
                return load(Long.parseLong(words[1]));
            case "reads":
                long rows = Long.parseLong(words[1]);
                return together(words, 2, (connection, end) -> reads(connection, rows, end));
            case "commits":
                return together(words, 1, this::commits);
            case "insert":
                isInserting = true;
                new Thread(this::insertUntilStopped).start();
                return null;
            case "stop":
                isInserting = false;
                return null;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private Connection connection(int number) throws SQLException {
        while (connections.size() <= number) {
            connections.add(connect());
        }
        return connections.get(number);
    }

    private Connection connect() throws SQLException {
        Connection made = source.getConnection();
        made.setAutoCommit(true);
        return made;
    }

    /** Give the tablespace so many replicas, of which one takes over; wait until they follow. */
    private String replicate(int count, long inactivityMs) throws Exception {
        try (Statement statement = connection(0).createStatement()) {
            statement.executeUpdate("ALTER TABLESPACE 'herd','expectedreplicacount:" + count
                    + "','maxleaderinactivitytime:" + inactivityMs + "'");
            while (count(statement, "SELECT COUNT(*) FROM SYSTABLESPACEREPLICASTATE"
                    + " WHERE tablespace_name='herd' AND mode='follower'") < count - 1) {
                Thread.sleep(LOOK_MS);
            }
        }
        return "1";
    }

    private static long count(Statement statement, String text) throws SQLException {
        try (ResultSet found = statement.executeQuery(text)) {
            found.next();
            return found.getLong(1);
        }
    }

    private String leader() throws SQLException {
        try (Statement statement = connection(0).createStatement();
                ResultSet found = statement.executeQuery(
                        "SELECT leader FROM SYSTABLESPACES WHERE tablespace_name='herd'")) {
            found.next();
            return found.getString(1);
        }
    }

    private String load(long rows) throws Exception {
        try (Statement statement = connection(0).createStatement()) {
            statement.executeUpdate("CREATE TABLE big " + HerdDb.COLUMNS);
            statement.executeUpdate("CREATE TABLE written " + HerdDb.COLUMNS);
        }
        String upsert = String.format(HerdDb.INSERT, "big").replace("INSERT", "UPSERT");
        AtomicLong next = new AtomicLong();
        return together(LOADING_THREADS, 0, (connection, end) -> {
            for (long id = next.getAndIncrement(); id < rows; id = next.getAndIncrement()) {
                put(connection, upsert, id);
            }
            return List.of();
        });
    }

    /** Each by itself, and again where it failed: a batch was not answered, seen once in two. */
    private static void put(Connection connection, String text, long id) throws SQLException {
        for (int left = TRIES; ; left--) {
            try (PreparedStatement upsert = connection.prepareStatement(text)) {
                HerdDb.set(upsert, id);
                upsert.executeUpdate();
                return;
            } catch (SQLException error) {
                if (left == 0) {
                    throw error;
                }
            }
        }
    }

    private interface Worker {
        /** Do it until the time is over; return how long each took, in nanoseconds. */
        List<Long> work(Connection connection, long endNanos) throws Exception;
    }

    /** Run in threads; words[at] says how many, words[at + 1] for how many seconds. */
    private String together(String[] words, int at, Worker worker) throws Exception {
        int threads = Integer.parseInt(words[at]);
        for (int number = 0; number < threads; number++) {
            worker.work(connection(number), 0); // prepares
        }
        return together(threads, (long) (Double.parseDouble(words[at + 1]) * 1e9), worker);
    }

    private String together(int threads, long nanos, Worker worker) throws Exception {
        StringJoiner taken = new StringJoiner(",", "[", "]");
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long start = System.nanoTime();
        try {
            List<Future<List<Long>>> futures = new ArrayList<>();
            for (int number = 0; number < threads; number++) {
                Connection own = connection(number);
                Callable<List<Long>> job = () -> worker.work(own, start + nanos);
                futures.add(pool.submit(job));
            }
            for (Future<List<Long>> future : futures) {
                for (long each : future.get()) {
                    taken.add(String.valueOf(each / 1000));
                }
            }
        } finally {
            pool.shutdown();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        return "{\"seconds\": " + seconds + ", \"failed\": " + failed.getAndSet(0)
                + ", \"taken_us\": " + taken + "}";
    }

    private List<Long> reads(Connection connection, long rows, long end) throws SQLException {
        List<Long> taken = new ArrayList<>();
        try (PreparedStatement select =
                connection.prepareStatement("SELECT * FROM big WHERE id = ?")) {
            long now = System.nanoTime();
            do {
                long begun = now;
                select.setLong(1, ThreadLocalRandom.current().nextLong(rows));
                try (ResultSet found = select.executeQuery()) {
                    if (!found.next() || found.getString(5) == null) {
                        throw new IllegalStateException("a row is missing");
                    }
                }
                now = System.nanoTime();
                taken.add(now - begun);
            } while (now < end);
        }
        return taken;
    }

    private List<Long> commits(Connection connection, long end) throws SQLException {
        List<Long> taken = new ArrayList<>();
        try (PreparedStatement insert =
                connection.prepareStatement(String.format(HerdDb.INSERT, "written"))) {
            long now = System.nanoTime();
            do {
                long begun = now;
                HerdDb.set(insert, ids.incrementAndGet());
                try {
                    insert.executeUpdate();
                    now = System.nanoTime();
                    taken.add(now - begun);
                } catch (SQLException error) {
                    failed.incrementAndGet();
                    now = System.nanoTime();
                }
            } while (now < end);
        }
        return taken;
    }

    /**
     * Insert one row behind the other, and say each silence: from one success to the next. It
     * answers at the first one, and at the end.
     */
    private void insertUntilStopped() {
        double last = 0;
        long done = 0;
        long failed = 0;
        while (isInserting) {
            try (Connection own = connect();
                    PreparedStatement insert =
                            own.prepareStatement(String.format(HerdDb.INSERT, "written"))) {
                while (isInserting) {
                    HerdDb.set(insert, ids.incrementAndGet());
                    insert.executeUpdate();
                    double now = System.nanoTime() / 1e9;
                    done++;
                    if (done == 1) {
                        say("{\"answer\": 1}");
                    } else if (now - last > GAP_S) {
                        say("{\"gap\": [" + last + ", " + now + "]}");
                    }
                    last = now;
                }
            } catch (SQLException | RuntimeException error) {
                failed++;
                pause();
            }
        }
        say("{\"answer\": {\"done\": " + done + ", \"failed\": " + failed + "}}");
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
