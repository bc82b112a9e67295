package holdfast;

import static holdfast.Client.connect;
import static holdfast.Client.execute;
import static holdfast.Client.rows;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicInteger;

/** 32 threads share a pool of 12 connections: orders with their lines, stock that must not fall below zero, reports. */
final class Pool {
    private static final int THREADS = 32;
    private static final int CONNECTIONS = 12;
    private static final int ROUNDS = 15;
    private static final int ARTICLES = 8;
    private static final int STOCK = 150;

    /** Serialization failure and deadlock: the transaction is run again. */
    private static final Set<String> RETRY = Set.of("40001", "40P01");

    private static final String CHECK_VIOLATION = "23514";

    /** Articles whose stock and orders do not add up to what there was. */
    private static final String UNBALANCED = "SELECT count(*) FROM article AS a WHERE " + STOCK
            + " <> a.stock + (SELECT coalesce(sum(amount), 0) FROM line WHERE article_id = a.id)";

    private final BlockingQueue<Connection> free = new ArrayBlockingQueue<>(CONNECTIONS);
    private final Set<String> errors = new ConcurrentSkipListSet<>();
    private final AtomicInteger ordered = new AtomicInteger();

    /** What one transaction does. */
    private interface Work {
        void run(Connection connection) throws SQLException;
    }

    static void register() {
        Client.add("pool_of_32_threads", connection -> new Pool().run(connection));
    }

    private Object run(Connection connection) throws Exception {
        execute(connection,
                "CREATE TABLE article (id int PRIMARY KEY, stock int NOT NULL CHECK (stock >= 0))",
                "CREATE TABLE orders (id serial PRIMARY KEY, customer int NOT NULL)",
                "CREATE TABLE line (order_id int NOT NULL REFERENCES orders (id), article_id int NOT NULL REFERENCES "
                        + "article (id), amount int NOT NULL, PRIMARY KEY (order_id, article_id))",
                "INSERT INTO article SELECT g, " + STOCK + " FROM generate_series(1, " + ARTICLES + ") AS g");
        for (int i = 0; i < CONNECTIONS; i++) {
            Connection pooled = connect(new Properties());
            pooled.setAutoCommit(false);
            free.put(pooled);
        }
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            threads.add(new Thread(() -> live(new Random(number))));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        for (Connection pooled : free) {
            pooled.close();
        }
        boolean all = rows(connection, "SELECT count(*) FROM orders").equals(List.of("(" + ordered.get() + ":Long)"));
        return new TreeSet<>(errors) + ", every order counted: " + all + ", unbalanced: "
                + rows(connection, UNBALANCED) + ", below zero: "
                + rows(connection, "SELECT count(*) FROM article WHERE stock < 0");
    }

    private void live(Random random) {
        try {
            for (int i = 0; i < ROUNDS; i++) {
                int choice = random.nextInt(10);
                if (choice < 6) {
                    boolean taken = retrying(c -> order(c, random), Connection.TRANSACTION_READ_COMMITTED);
                    ordered.addAndGet(taken ? 1 : 0);
                } else if (choice < 9) {
                    retrying(c -> move(c, random), Connection.TRANSACTION_REPEATABLE_READ);
                } else {
                    retrying(this::report, Connection.TRANSACTION_READ_COMMITTED);
                }
            }
        } catch (Exception error) {
            errors.add(error.toString());
        }
    }

    /** Runs a transaction on a connection of the pool; false when there was not enough in stock. */
    private boolean retrying(Work work, int level) throws Exception {
        while (true) {
            Connection connection = free.take();
            try {
                connection.setTransactionIsolation(level);
                work.run(connection);
                connection.commit();
                return true;
            } catch (SQLException error) {
                connection.rollback();
                if (CHECK_VIOLATION.equals(error.getSQLState())) {
                    return false;
                }
                if (!RETRY.contains(error.getSQLState())) {
                    throw error;
                }
            } finally {
                free.put(connection);
            }
        }
    }

    private void order(Connection connection, Random random) throws SQLException {
        int order;
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO orders (customer) VALUES (?)",
                Statement.RETURN_GENERATED_KEYS)) {
            insert.setInt(1, random.nextInt(100));
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                order = keys.getInt(1);
            }
        }
        int first = 1 + random.nextInt(ARTICLES - 1);
        for (int article = first; article <= first + 1; article++) {
            int amount = 1 + random.nextInt(3);
            change(connection, "UPDATE article SET stock = stock - ? WHERE id = ?", amount, article);
            change(connection, "INSERT INTO line VALUES (?, ?, ?)", order, article, amount);
        }
    }

    /** Reads a line's amount and writes what it has computed from it: only the isolation level keeps the sum right. */
    private void move(Connection connection, Random random) throws SQLException {
        int article = 1 + random.nextInt(ARTICLES);
        String sql = "SELECT l.order_id, l.amount, a.stock FROM line AS l JOIN article AS a ON a.id = l.article_id "
                + "WHERE l.article_id = ? ORDER BY l.order_id LIMIT 1";
        try (PreparedStatement query = connection.prepareStatement(sql)) {
            query.setInt(1, article);
            try (ResultSet result = query.executeQuery()) {
                if (!result.next()) {
                    return;
                }
                int order = result.getInt(1);
                int amount = result.getInt(2);
                int stock = result.getInt(3);
                change(connection, "UPDATE line SET amount = ? WHERE order_id = ? AND article_id = ?", amount + 1,
                        order, article);
                change(connection, "UPDATE article SET stock = ? WHERE id = ?", stock - 1, article);
            }
        }
    }

    private void report(Connection connection) throws SQLException {
        if (!rows(connection, UNBALANCED).equals(List.of("(0:Long)"))) {
            errors.add("a report saw articles that do not balance");
        }
    }

    private static void change(Connection connection, String sql, int... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setInt(i + 1, values[i]);
            }
            if (statement.executeUpdate() != 1) {
                throw new SQLException(sql + " changed no row");
            }
        }
    }
}
