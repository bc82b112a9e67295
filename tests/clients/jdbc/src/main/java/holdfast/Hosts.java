package holdfast;

import java.sql.Connection;
import java.sql.DriverManager;
import java.util.List;
import java.util.Properties;
import org.postgresql.jdbc.PgConnection;

/**
 * pgjdbc with two hosts: prints for each targetServerType which of them it ends at, counted from 1. The ports are the
 * arguments.
 */
public final class Hosts {
    private static final List<String> TYPES = List.of("any", "primary", "secondary", "preferSecondary");

    public static void main(String[] ports) {
        for (String type : TYPES) {
            String found;
            try {
                found = String.valueOf(endsAt(List.of(ports), type));
            } catch (Exception error) {
                found = "! " + error;
            }
            System.out.println(type + "\t" + found.replace("\n", "\\n"));
        }
    }

    private static int endsAt(List<String> ports, String type) throws Exception {
        String hosts = String.join(",", ports.stream().map(port -> "127.0.0.1:" + port).toList());
        Properties options = new Properties();
        options.setProperty("user", "holdfast");
        options.setProperty("sslmode", "disable");
        options.setProperty("targetServerType", type);
        // It would remember the roles that the servers had at the attempt before.
        options.setProperty("hostRecheckSeconds", "0");
        try (Connection connection = DriverManager.getConnection("jdbc:postgresql://" + hosts + "/holdfast", options)) {
            Client.rows(connection, "SELECT 1");
            int port = ((PgConnection) connection).getQueryExecutor().getHostSpec().getPort();
            return 1 + ports.indexOf(String.valueOf(port));
        }
    }
}
