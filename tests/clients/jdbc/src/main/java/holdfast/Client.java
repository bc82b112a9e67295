package holdfast;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * pgjdbc as a client: the same program runs against PostgreSQL and against Holdfast and prints one line a case,
 * "case TAB finding". A finding that starts with "! " is an exception nobody expected. PGHOST, PGPORT, PGUSER and
 * PGDATABASE say where.
 */
public final class Client {
    /** A case gets a connection of its own and returns what it found. */
    interface Case {
        Object run(Connection connection) throws Exception;
    }

    private static final Map<String, Case> CASES = new LinkedHashMap<>();

    static void add(String name, Case body) {
        CASES.put(name, body);
    }

    public static void main(String[] arguments) {
        Statements.register();
        Results.register();
        Metadata.register();
        Pool.register();
        TwoPhase.register();
        CASES.forEach(Client::report);
    }

    private static void report(String name, Case body) {
        String finding;
        try (Connection connection = connect(new Properties())) {
            finding = String.valueOf(body.run(connection));
        } catch (Exception error) {
            finding = "! " + error;
            error.printStackTrace();
        }
        System.out.println(name + "\t" + finding.replace("\n", "\\n"));
    }

    static Connection connect(Properties options) throws SQLException {
        options.setProperty("user", System.getenv("PGUSER"));
        options.setProperty("sslmode", "disable");
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
                + System.getenv("PGDATABASE");
        return DriverManager.getConnection(url, options);
    }

    static void execute(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }

    /** All rows of a query, each value with the class the driver chose for it. */
    static List<String> rows(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            return rows(result);
        }
    }

    static List<String> rows(ResultSet result) throws SQLException {
        List<String> rows = new ArrayList<>();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
            StringBuilder row = new StringBuilder();
            for (int i = 1; i <= columns; i++) {
                Object value = result.getObject(i);
                String type = value == null ? "" : ":" + value.getClass().getSimpleName();
                row.append(i == 1 ? "" : ", ").append(value).append(type);
            }
            rows.add("(" + row + ")");
        }
        return rows;
    }

    /** The SQLSTATE of a statement that has to fail. */
    static String stateOf(Connection connection, String sql) {
        try {
            execute(connection, sql);
            return "no error";
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }
}
