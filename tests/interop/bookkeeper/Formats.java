import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Optional;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.proto.BookkeeperProtocol.Request;
import org.apache.bookkeeper.proto.BookkeeperProtocol.Response;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/**
 * Reads bytes with Apache's own classes and writes them again, line by line: "kind hex [ids]" in,
 * hex out, or "error" and why.
 */
public class Formats {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String answer(String[] words) throws Exception {
        byte[] data = words[0].equals("ids") ? null : bytes(words.length > 1 ? words[1] : "");
        switch (words[0]) {
            case "metadata":
                LedgerMetadataSerDe codec = new LedgerMetadataSerDe();
                return hex(codec.serialize(codec.parseConfig(data, 7L, Optional.empty())));
            case "request":
                return hex(Request.parseFrom(data).toByteArray());
            case "response":
                return hex(Response.parseFrom(data).toByteArray());
            case "availability":
                return held(new AvailabilityOfEntriesOfLedger(data), words[2]);
            case "ids":
                return hex(new AvailabilityOfEntriesOfLedger(
                        Arrays.stream(words[1].split(",")).mapToLong(Long::parseLong).iterator())
                        .serializeStateOfEntriesOfLedger());
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String held(AvailabilityOfEntriesOfLedger entries, String asked) {
        StringBuilder answer = new StringBuilder(entries.getTotalNumOfAvailableEntries() + ":");
        for (String id : asked.split(",")) {
            answer.append(entries.isEntryAvailable(Long.parseLong(id)) ? '1' : '0');
        }
        return answer.toString();
    }

    private static byte[] bytes(String hex) {
        byte[] result = new byte[hex.length() / 2];
        for (int i = 0; i < result.length; i++) {
            result[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return result;
    }

    private static String hex(byte[] data) {
        StringBuilder result = new StringBuilder(2 * data.length);
        for (byte b : data) {
            result.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return result.toString();
    }
}
