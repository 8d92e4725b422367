import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** What the programs share: arguments as name=value, the client, entries that can be checked. */
final class Peer {
    private final Map<String, String> values = new HashMap<>();

    Peer(String[] arguments) {
        // The client's threads would keep the program alive.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            values.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
    }

    String text(String name, String missing) {
        return values.getOrDefault(name, missing);
    }

    long number(String name, long missing) {
        return values.containsKey(name) ? Long.parseLong(values.get(name)) : missing;
    }

    boolean is(String name) {
        return number(name, 0) != 0;
    }

    byte[] password() {
        return text("password", "").getBytes(StandardCharsets.UTF_8);
    }

    DigestType digest() {
        return DigestType.valueOf(text("digest", "CRC32C"));
    }

    BookKeeper connect() throws Exception {
        return new BookKeeper(settings());
    }

    ClientConfiguration settings() {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(text("uri", null));
        settings.setThrottleValue(0);
        settings.setUseV2WireProtocol(is("v2"));
        settings.setExplictLacInterval((int) number("explicit_lac_ms", 0));
        settings.setDelayEnsembleChange(is("delay_change"));
        settings.setZkEnableSecurity(is("secured"));
        if (values.containsKey("tls_trust")) {
            settings.setTLSProviderFactoryClass("org.apache.bookkeeper.tls.TLSContextFactory");
            settings.setTLSProvider("JDK");
            settings.setTLSClientAuthentication(true);
            settings.setTLSKeyStoreType("PEM");
            settings.setTLSKeyStore(text("tls_key", null));
            settings.setTLSCertificatePath(text("tls_certificate", null));
            settings.setTLSTrustStoreType("PEM");
            settings.setTLSTrustStore(text("tls_trust", null));
        }
        // On a busy machine five seconds are no sign of a dead bookie, and there is no spare one.
        settings.setAddEntryTimeout(30);
        // Two racks are not to be had on one machine, and nothing is placed by them.
        settings.setEnforceMinNumRacksPerWriteQuorum(false);
        return settings;
    }

    /** Entry `id` of the ledger: "entry-<id>;" over and over, `size` bytes long. */
    static byte[] payload(long id, int size) {
        byte[] pattern = ("entry-" + id + ";").getBytes(StandardCharsets.UTF_8);
        byte[] result = new byte[size];
        for (int i = 0; i < size; i++) {
            result[i] = pattern[i % pattern.length];
        }
        return result;
    }

    static boolean isPayload(long id, byte[] found) {
        return Arrays.equals(found, payload(id, found.length));
    }

    /** Prints one line of JSON from names and values in turn; texts are quoted, the rest is not. */
    static void say(Object... parts) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < parts.length; i += 2) {
            line.append(i == 0 ? "" : ", ").append(quoted((String) parts[i])).append(": ");
            append(line, parts[i + 1]);
        }
        synchronized (System.out) {
            System.out.println(line.append('}'));
            System.out.flush();
        }
    }

    private static void append(StringBuilder line, Object value) {
        if (value instanceof List) {
            line.append('[');
            String between = "";
            for (Object item : (List<?>) value) {
                line.append(between);
                append(line, item);
                between = ", ";
            }
            line.append(']');
        } else if (value instanceof Number || value instanceof Boolean || value == null) {
            line.append(value);
        } else {
            line.append(quoted(value.toString()));
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
