import herddb.client.ClientConfiguration;
import herddb.client.HDBClient;
import herddb.jdbc.BasicHerdDBDataSource;
import herddb.jdbc.HerdDBDataSource;
import herddb.server.Server;
import herddb.server.ServerConfiguration;
import herddb.server.StaticClientSideMetadataProvider;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import javax.sql.DataSource;

/**
 * HerdDB in this process, as a server, or as a client of one: "embedded DIRECTORY",
 * "server DIRECTORY PORT", "client PORT". All but a server do what lines on standard input say, as
 * herddb_client.py does, and answer each with a line of JSON. Every commit waits for fsync, which is
 * HerdDB's default (requirefsync, no deferred sync).
 */
public final class HerdDb {
    static final String HOST = "127.0.0.1";
    static final String COLUMNS =
            "(id long primary key, a long, b long, x double, name string, city string)";
    static final String INSERT = "INSERT INTO %s (id,a,b,x,name,city) VALUES (?,?,?,?,?,?)";
    static final int LOADED_AT_ONCE = 5_000;

    private final DataSource source;
    private final List<Connection> connections = new ArrayList<>();
    private final AtomicLong ids = new AtomicLong(1_000_000_000L);
    private long rows;

    private HerdDb(DataSource source) {
        this.source = source;
    }

    public static void main(String[] arguments) throws Exception {
        long start = System.nanoTime();
        HerdDb program;
        if (arguments[0].equals("server")) {
            start(Paths.get(arguments[1]), Integer.parseInt(arguments[2]));
            say("ready", 1);
            System.in.read();
            Runtime.getRuntime().halt(0);
            return;
        } else if (arguments[0].equals("embedded")) {
            Server server = start(Paths.get(arguments[1]), 0);
            HDBClient client = new HDBClient(new ClientConfiguration(Paths.get(arguments[1])));
            client.setClientSideMetadataProvider(new StaticClientSideMetadataProvider(server));
            program = new HerdDb(new BasicHerdDBDataSource(client));
        } else {
            HerdDBDataSource remote = new HerdDBDataSource();
            remote.setUrl("jdbc:herddb:server:" + HOST + ":" + arguments[1]);
            program = new HerdDb(remote);
        }
        program.connection(0);
        say("ready", (System.nanoTime() - start) / 1e9);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            say("answer", program.run(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Server start(Path directory, int port) throws Exception {
        ServerConfiguration configuration = new ServerConfiguration(directory);
        configuration.set(ServerConfiguration.PROPERTY_MODE,
                ServerConfiguration.PROPERTY_MODE_STANDALONE);
        configuration.set(ServerConfiguration.PROPERTY_HOST, HOST);
        configuration.set(ServerConfiguration.PROPERTY_PORT, port);
        configuration.set(ServerConfiguration.PROPERTY_NETWORK_ENABLED, port != 0);
        configuration.set(ServerConfiguration.PROPERTY_REQUIRE_FSYNC, true);
        configuration.set(ServerConfiguration.PROPERTY_DEFERRED_SYNC_PERIOD, 0);
        Server server = new Server(configuration);
        server.start();
        server.waitForStandaloneBoot();
        return server;
    }

    private double run(String[] words) throws Exception {
        int first = words.length > 1 ? Integer.parseInt(words[1]) : 0;
        switch (words[0]) {
            case "load":
                return load(first);
            case "rows":
                rows = first;
                return rows;
            case "points":
                return repeat(first, Double.parseDouble(words[2]), this::points);
            case "inserts":
                return repeat(first, Double.parseDouble(words[2]), this::inserts);
            case "updates":
                return repeat(first, Double.parseDouble(words[2]), this::updates);
            case "singles":
                return singles(first, Long.parseLong(words[2]));
            case "batch":
                return batch(first);
            case "group":
                return group();
            case "columns":
                return columns();
            case "count":
                return count();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private Connection connection(int number) throws Exception {
        while (connections.size() <= number) {
            Connection made = source.getConnection();
            made.setAutoCommit(true);
            connections.add(made);
        }
        return connections.get(number);
    }

    private double load(int count) throws Exception {
        Connection connection = connection(0);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("CREATE TABLE big " + COLUMNS);
            statement.executeUpdate("CREATE TABLE written " + COLUMNS);
        }
        for (long from = 0; from < count; from += LOADED_AT_ONCE) {
            insertMany("big", from, Math.min(from + LOADED_AT_ONCE, count));
        }
        rows = count;
        return count;
    }

    private void insertMany(String table, long from, long to) throws Exception {
        Connection connection = connection(0);
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement(String.format(INSERT, table))) {
            for (long id = from; id < to; id++) {
                set(insert, id);
                insert.addBatch();
            }
            insert.executeBatch();
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void set(PreparedStatement insert, long id) throws SQLException {
        insert.setLong(1, id);
        insert.setLong(2, id % 1000);
        insert.setLong(3, id % 100);
        insert.setDouble(4, id * 0.25);
        insert.setString(5, "name of " + id);
        insert.setString(6, "city " + id % 100);
    }

    private interface Worker {
        /** Do it until the time is over; return how often. */
        long work(Connection connection, long endNanos) throws Exception;
    }

    /** Run in so many threads, each with a connection of its own; return how often a second. */
    private double repeat(int threads, double seconds, Worker worker) throws Exception {
        for (int number = 0; number < threads; number++) {
            worker.work(connection(number), 0); // prepares
        }
        long start = System.nanoTime();
        long done = together(threads, start + (long) (seconds * 1e9), worker);
        return done / ((System.nanoTime() - start) / 1e9);
    }

    private long together(int threads, long end, Worker worker) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<Long>> futures = new ArrayList<>();
            for (int number = 0; number < threads; number++) {
                Connection own = connection(number);
                Callable<Long> job = () -> worker.work(own, end);
                futures.add(pool.submit(job));
            }
            long done = 0;
            for (Future<Long> future : futures) {
                done += future.get();
            }
            return done;
        } finally {
            pool.shutdown();
        }
    }

    private long points(Connection connection, long end) throws Exception {
        long done = 0;
        try (PreparedStatement select =
                connection.prepareStatement("SELECT * FROM big WHERE id = ?")) {
            do {
                select.setLong(1, ThreadLocalRandom.current().nextLong(rows));
                try (ResultSet found = select.executeQuery()) {
                    if (!found.next() || found.getString(5) == null) {
                        throw new IllegalStateException("a row is missing");
                    }
                }
                done++;
            } while (System.nanoTime() < end);
        }
        return done;
    }

    private long inserts(Connection connection, long end) throws Exception {
        long done = 0;
        try (PreparedStatement insert =
                connection.prepareStatement(String.format(INSERT, "written"))) {
            do {
                set(insert, ids.incrementAndGet());
                insert.executeUpdate();
                done++;
            } while (System.nanoTime() < end);
        }
        return done;
    }

    private long updates(Connection connection, long end) throws Exception {
        long done = 0;
        try (PreparedStatement update =
                connection.prepareStatement("UPDATE big SET a = a + 1 WHERE id = ?")) {
            do {
                update.setLong(1, ThreadLocalRandom.current().nextLong(rows));
                if (update.executeUpdate() != 1) {
                    throw new IllegalStateException("a row is missing");
                }
                done++;
            } while (System.nanoTime() < end);
        }
        return done;
    }

    /** Insert so many rows, each by a statement that commits; return how many there are. */
    private double singles(int threads, long count) throws Exception {
        AtomicLong left = new AtomicLong(count);
        together(threads, 0, (connection, end) -> {
            try (PreparedStatement insert =
                    connection.prepareStatement(String.format(INSERT, "written"))) {
                while (left.decrementAndGet() >= 0) {
                    set(insert, ids.incrementAndGet());
                    insert.executeUpdate();
                }
            }
            return 0;
        });
        return count();
    }

    private double batch(int count) throws Exception {
        long from = ids.getAndAdd(count) + 1;
        long start = System.nanoTime();
        insertMany("written", from, from + count);
        return count / ((System.nanoTime() - start) / 1e9);
    }

    private double group() throws Exception {
        long start = System.nanoTime();
        long found = read("SELECT b, COUNT(*), SUM(a) FROM big GROUP BY b", 3);
        if (found != Math.min(100, rows)) {
            throw new IllegalStateException(found + " groups");
        }
        return 1 / ((System.nanoTime() - start) / 1e9);
    }

    private double columns() throws Exception {
        long start = System.nanoTime();
        long found = read("SELECT id, name FROM big", 2);
        if (found != rows) {
            throw new IllegalStateException(found + " rows");
        }
        return found / ((System.nanoTime() - start) / 1e9);
    }

    private double count() throws Exception {
        try (Statement statement = connection(0).createStatement();
                ResultSet found = statement.executeQuery("SELECT COUNT(*) FROM written")) {
            found.next();
            return found.getLong(1);
        }
    }

    private long read(String text, int width) throws Exception {
        long found = 0;
        try (Statement statement = connection(0).createStatement();
                ResultSet result = statement.executeQuery(text)) {
            while (result.next()) {
                for (int column = 1; column <= width; column++) {
                    if (result.getObject(column) == null) {
                        throw new IllegalStateException("NULL");
                    }
                }
                found++;
            }
        }
        return found;
    }

    private static void say(String name, double value) {
        System.out.println("{\"" + name + "\": " + value + "}");
        System.out.flush();
    }
}
