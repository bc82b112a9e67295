package holdfast;

import static holdfast.Client.add;
import static holdfast.Client.execute;
import static holdfast.Client.rows;
import static holdfast.Client.stateOf;

import java.io.StringReader;
import java.io.StringWriter;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.postgresql.PGConnection;

/** Prepared statements, batches, generated keys, transactions, COPY. */
final class Statements {
    static void register() {
        add("plain_statement", Statements::plainStatement);
        add("prepared_statement_beyond_the_threshold", Statements::beyondTheThreshold);
        add("generated_keys", Statements::generatedKeys);
        add("batch", Statements::batch);
        add("batch_with_generated_keys", Statements::batchWithGeneratedKeys);
        add("batch_with_an_error", Statements::batchWithAnError);
        add("transaction", Statements::transaction);
        add("savepoint", Statements::savepoint);
        add("failed_transaction", Statements::failedTransaction);
        add("several_results", Statements::severalResults);
        add("query_timeout", Statements::queryTimeout);
        add("copy_in_and_out", Statements::copyInAndOut);
        add("sqlstates", Statements::sqlstates);
        add("isolation_and_read_only", Statements::isolationAndReadOnly);
    }

    static Object plainStatement(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE plain (id int PRIMARY KEY, name text)");
        try (Statement statement = connection.createStatement()) {
            int inserted = statement.executeUpdate("INSERT INTO plain VALUES (1, 'one'), (2, 'zwei ☃')");
            return inserted + " " + rows(connection, "SELECT * FROM plain ORDER BY id");
        }
    }

    /** pgjdbc prepares a named statement on the server and asks for binary results after five runs. */
    static Object beyondTheThreshold(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE threshold (id int PRIMARY KEY, n bigint, t text)");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO threshold VALUES (?, ?, ?)")) {
            for (int i = 0; i < 12; i++) {
                insert.setInt(1, i);
                insert.setLong(2, i * 10_000_000_000L);
                insert.setString(3, i % 2 == 0 ? null : "odd");
                insert.executeUpdate();
            }
        }
        List<String> seen = new ArrayList<>();
        try (PreparedStatement select = connection.prepareStatement("SELECT n, t FROM threshold WHERE id = ?")) {
            for (int i = 0; i < 12; i++) {
                select.setInt(1, i);
                try (ResultSet result = select.executeQuery()) {
                    seen.addAll(rows(result));
                }
            }
        }
        return seen;
    }

    static Object generatedKeys(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE keys (id serial PRIMARY KEY, v text)");
        List<Long> keys = new ArrayList<>();
        String sql = "INSERT INTO keys (v) VALUES (?)";
        try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id"})) {
            for (String v : List.of("a", "b", "c")) {
                insert.setString(1, v);
                insert.executeUpdate();
                try (ResultSet result = insert.getGeneratedKeys()) {
                    result.next();
                    keys.add(result.getLong(1));
                }
            }
        }
        try (PreparedStatement insert = connection.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, "d");
            insert.executeUpdate();
            try (ResultSet result = insert.getGeneratedKeys()) {
                return keys + " " + rows(result);
            }
        }
    }

    static Object batch(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE batch (id int PRIMARY KEY, t text)");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batch VALUES (?, ?)")) {
            for (int i = 0; i < 300; i++) {
                insert.setInt(1, i);
                insert.setString(2, "row " + i);
                insert.addBatch();
            }
            int total = Arrays.stream(insert.executeBatch()).sum();
            return total + " " + rows(connection, "SELECT count(*), sum(id), max(t) FROM batch");
        }
    }

    static Object batchWithGeneratedKeys(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE batchkeys (id serial PRIMARY KEY, t text)");
        String sql = "INSERT INTO batchkeys (t) VALUES (?)";
        try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id"})) {
            for (String t : List.of("a", "b", "c")) {
                insert.setString(1, t);
                insert.addBatch();
            }
            insert.executeBatch();
            try (ResultSet result = insert.getGeneratedKeys()) {
                return rows(result);
            }
        }
    }

    static Object batchWithAnError(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE batchbad (id int PRIMARY KEY)");
        String outcome = "no error";
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batchbad VALUES (?)")) {
            for (int id : new int[] {1, 2, 1, 3}) {
                insert.setInt(1, id);
                insert.addBatch();
            }
            insert.executeBatch();
        } catch (BatchUpdateException error) {
            outcome = error.getSQLState();
        }
        connection.rollback();
        return outcome + " " + rows(connection, "SELECT count(*) FROM batchbad");
    }

    static Object transaction(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE txn (id int PRIMARY KEY)");
        connection.setAutoCommit(false);
        execute(connection, "INSERT INTO txn VALUES (1)");
        connection.commit();
        execute(connection, "INSERT INTO txn VALUES (2)");
        connection.rollback();
        connection.setAutoCommit(true);
        return rows(connection, "SELECT id FROM txn");
    }

    static Object savepoint(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE sp (id int PRIMARY KEY)");
        connection.setAutoCommit(false);
        execute(connection, "INSERT INTO sp VALUES (1)");
        Savepoint mark = connection.setSavepoint("mark");
        String failed = stateOf(connection, "INSERT INTO sp VALUES (1)");
        connection.rollback(mark);
        execute(connection, "INSERT INTO sp VALUES (2)");
        connection.releaseSavepoint(mark);
        connection.commit();
        return failed + " " + rows(connection, "SELECT id FROM sp ORDER BY id");
    }

    static Object failedTransaction(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        String first = stateOf(connection, "SELECT * FROM missing");
        String second = stateOf(connection, "SELECT 1");
        connection.rollback();
        return first + " " + second + " " + stateOf(connection, "SELECT 1");
    }

    static Object severalResults(Connection connection) throws Exception {
        List<String> seen = new ArrayList<>();
        try (Statement statement = connection.createStatement()) {
            boolean more = statement.execute("CREATE TABLE several (a int); INSERT INTO several VALUES (1), (2); SELECT a FROM several");
            for (int count = statement.getUpdateCount(); more || count != -1; count = statement.getUpdateCount()) {
                seen.add(more ? rows(statement.getResultSet()).toString() : String.valueOf(count));
                more = statement.getMoreResults();
            }
        }
        return seen;
    }

    static Object queryTimeout(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.execute("SELECT pg_sleep(60)");
            return "no error";
        } catch (java.sql.SQLException error) {
            return error.getSQLState() + " " + rows(connection, "SELECT 1");
        }
    }

    static Object copyInAndOut(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE copied (id int, t text)");
        var copy = connection.unwrap(PGConnection.class).getCopyAPI();
        long in = copy.copyIn("COPY copied FROM STDIN", new StringReader("1\tone\n2\t\\N\n"));
        StringWriter out = new StringWriter();
        long lines = copy.copyOut("COPY copied TO STDOUT WITH (FORMAT csv)", out);
        return in + " " + lines + " " + out;
    }

    static Object sqlstates(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE states (id int PRIMARY KEY, n int NOT NULL CHECK (n > 0))",
                "INSERT INTO states VALUES (1, 1)");
        List<String> seen = new ArrayList<>();
        for (String sql : List.of("SELEC 1", "SELECT * FROM missing", "SELECT missing FROM states",
                "INSERT INTO states VALUES (1, 1)", "INSERT INTO states VALUES (2, NULL)",
                "INSERT INTO states VALUES (2, 0)")) {
            seen.add(stateOf(connection, sql));
        }
        return seen + " " + stateOf(connection, "SELECT 1");
    }

    static Object isolationAndReadOnly(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE levels (id int)");
        List<Object> seen = new ArrayList<>();
        seen.add(connection.getTransactionIsolation());
        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        seen.add(connection.getTransactionIsolation());
        connection.setAutoCommit(false);
        connection.setReadOnly(true);
        seen.add(stateOf(connection, "INSERT INTO levels VALUES (1)"));
        connection.rollback();
        return seen;
    }
}
