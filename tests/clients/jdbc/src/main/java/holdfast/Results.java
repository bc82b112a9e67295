package holdfast;

import static holdfast.Client.add;
import static holdfast.Client.execute;
import static holdfast.Client.rows;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.Properties;
import java.util.UUID;

/** Result types, by the text and by the binary way; fetch size; nulls. */
final class Results {
    static void register() {
        add("types_of_expressions", c -> rows(c,
                "SELECT 1, 2147483648, 'text', true, count(*), 1 = 2, '5'::int, 1.5, 2.5::float8"));
        add("types_of_aggregates", Results::aggregates);
        add("column_types_text", c -> columnTypes(c, "ttypes", 1));
        add("column_types_binary", c -> columnTypes(c, "btypes", 12));
        add("bytes", Results::bytes);
        add("numeric", Results::numeric);
        add("dates_and_times", Results::datesAndTimes);
        add("uuid", Results::uuid);
        add("typed_nulls", Results::typedNulls);
        add("fetch_size", Results::fetchSize);
        add("max_rows", Results::maxRows);
        add("simple_query_mode", Results::simpleQueryMode);
    }

    static Object aggregates(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE agg (a int, f float8, t text)",
                "INSERT INTO agg VALUES (1, 0.5, 'x'), (2, 1.5, 'y')");
        return rows(connection, "SELECT count(*), sum(a), max(a), min(t), sum(f), avg(f) FROM agg");
    }

    static Object columnTypes(Connection connection, String table, int runs) throws Exception {
        execute(connection, "CREATE TABLE " + table
                + " (a smallint, b int, c bigint, d text, e varchar(9), f boolean, g double precision, h real)");
        try (PreparedStatement insert =
                connection.prepareStatement("INSERT INTO " + table + " VALUES (?, ?, ?, ?, ?, ?, ?, ?)")) {
            insert.setShort(1, (short) -7);
            insert.setInt(2, Integer.MIN_VALUE);
            insert.setLong(3, Long.MAX_VALUE);
            insert.setString(4, "text ☃");
            insert.setString(5, "varchar");
            insert.setBoolean(6, true);
            insert.setDouble(7, 0.1);
            insert.setFloat(8, 1.5f);
            insert.executeUpdate();
        }
        Object last = null;
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM " + table + " WHERE b < ?")) {
            for (int run = 0; run < runs; run++) {
                select.setInt(1, 0);
                try (ResultSet result = select.executeQuery()) {
                    last = rows(result);
                }
            }
        }
        return last;
    }

    static Object bytes(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE bytes (id int PRIMARY KEY, b bytea)");
        byte[] data = new byte[300_000];
        for (int i = 0; i < data.length; i++) {
            data[i] = (byte) (i * 31);
        }
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO bytes VALUES (1, ?)")) {
            insert.setBytes(1, data);
            insert.executeUpdate();
        }
        try (Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("SELECT b FROM bytes")) {
            result.next();
            return java.util.Arrays.equals(data, result.getBytes(1));
        }
    }

    static Object numeric(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE money (v numeric(20,4))");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO money VALUES (?)")) {
            insert.setBigDecimal(1, new BigDecimal("1234567890123456.7890"));
            insert.executeUpdate();
            insert.setBigDecimal(1, new BigDecimal("0.0001"));
            insert.executeUpdate();
        }
        return rows(connection, "SELECT v FROM money ORDER BY v") + " " + rows(connection, "SELECT sum(v) FROM money");
    }

    static Object datesAndTimes(Connection connection) throws Exception {
        execute(connection, "SET timezone = 'UTC'", "CREATE TABLE times (d date, t timestamp, z timestamptz)");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO times VALUES (?, ?, ?)")) {
            insert.setObject(1, LocalDate.of(2024, 2, 29));
            insert.setTimestamp(2, Timestamp.valueOf(LocalDateTime.of(2024, 2, 29, 23, 59, 59, 123_456_000)));
            insert.setObject(3, OffsetDateTime.parse("2024-07-01T12:00:00Z"));
            insert.executeUpdate();
        }
        try (Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("SELECT d, t, z FROM times")) {
            result.next();
            return result.getObject(1, LocalDate.class) + " " + result.getObject(2, LocalDateTime.class) + " "
                    + result.getObject(3, OffsetDateTime.class);
        }
    }

    static Object uuid(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE ids (id uuid PRIMARY KEY)");
        UUID id = UUID.fromString("12345678-1234-5678-1234-567812345678");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO ids VALUES (?)")) {
            insert.setObject(1, id);
            insert.executeUpdate();
        }
        return rows(connection, "SELECT id FROM ids");
    }

    static Object typedNulls(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE nulls (a int, b text, c boolean, d timestamp)");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO nulls VALUES (?, ?, ?, ?)")) {
            insert.setNull(1, Types.INTEGER);
            insert.setNull(2, Types.VARCHAR);
            insert.setNull(3, Types.BOOLEAN);
            insert.setNull(4, Types.TIMESTAMP);
            insert.executeUpdate();
        }
        return rows(connection, "SELECT * FROM nulls");
    }

    /** In a transaction pgjdbc reads a large result through a portal, some rows at a time. */
    static Object fetchSize(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE fetched (id int PRIMARY KEY)",
                "INSERT INTO fetched SELECT g FROM generate_series(1, 1000) g");
        connection.setAutoCommit(false);
        long sum = 0;
        try (PreparedStatement select = connection.prepareStatement("SELECT id FROM fetched WHERE id > ? ORDER BY id")) {
            select.setFetchSize(64);
            select.setInt(1, 0);
            try (ResultSet result = select.executeQuery()) {
                while (result.next()) {
                    sum += result.getInt(1);
                }
            }
        }
        connection.commit();
        return sum;
    }

    static Object maxRows(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setMaxRows(3);
            return rows(statement.executeQuery("SELECT g FROM generate_series(1, 100) g"));
        }
    }

    static Object simpleQueryMode(Connection ignored) throws Exception {
        Properties options = new Properties();
        options.setProperty("preferQueryMode", "simple");
        try (Connection connection = Client.connect(options)) {
            execute(connection, "CREATE TABLE simplemode (id int PRIMARY KEY, t text)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO simplemode VALUES (?, ?)")) {
                insert.setInt(1, 1);
                insert.setString(2, "it's \\ here");
                insert.executeUpdate();
            }
            return rows(connection, "SELECT * FROM simplemode");
        }
    }
}
