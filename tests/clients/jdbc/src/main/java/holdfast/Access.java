package holdfast;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Map;
import java.util.Properties;

/**
 * pgjdbc over TLS and with a password: prints one line a case. The arguments are the port, the CA's certificate and that of
 * a foreign CA; the role {@code app} has the password {@code open sesame}.
 */
public final class Access {
    private static final String WHO =
            "SELECT current_user, (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid())";

    public static void main(String[] arguments) {
        String port = arguments[0];
        Map<String, String> verified = Map.of("sslmode", "verify-full", "sslrootcert", arguments[1]);
        Map<String, String> foreign = Map.of("sslmode", "verify-full", "sslrootcert", arguments[2]);
        attempt(port, "verify_full", verified, Map.of(), WHO);
        attempt(port, "channel_binding", verified, Map.of("channelBinding", "require"), WHO);
        attempt(port, "wrong_password", verified, Map.of("password", "open barley"), WHO);
        attempt(port, "unknown_user", verified, Map.of("user", "nobody at all"), WHO);
        attempt(port, "no_tls", Map.of("sslmode", "disable"), Map.of(), WHO);
        attempt(port, "foreign_ca", foreign, Map.of(), WHO);
        attempt(port, "granted", verified, Map.of(), "SELECT count(*) FROM notes");
        attempt(port, "denied", verified, Map.of(), "SELECT * FROM secrets");
    }

    private static void attempt(String port, String name, Map<String, String> tls, Map<String, String> more, String sql) {
        Properties options = new Properties();
        options.setProperty("user", "app");
        options.setProperty("password", "open sesame");
        options.putAll(tls);
        options.putAll(more);
        String found;
        String url = "jdbc:postgresql://localhost:" + port + "/holdfast";
        try (Connection connection = DriverManager.getConnection(url, options)) {
            found = Client.rows(connection, sql).toString();
        } catch (SQLException error) {
            found = "error: " + error.getSQLState() + " " + error.getMessage();
        } catch (Exception error) {
            found = "error: " + error;
        }
        System.out.println(name + "\t" + found.replace("\n", "\\n").replace(":" + port, ":PORT"));
    }
}
