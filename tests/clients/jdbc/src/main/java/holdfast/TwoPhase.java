package holdfast;

import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.XAConnection;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.postgresql.xa.PGXADataSource;

/** XADataSource, as a transaction manager uses it. */
final class TwoPhase {
    private TwoPhase() {}

    private record Branch(int format, String global, String branch) implements Xid {
        public int getFormatId() {
            return format;
        }

        public byte[] getGlobalTransactionId() {
            return global.getBytes();
        }

        public byte[] getBranchQualifier() {
            return branch.getBytes();
        }
    }

    static void register() {
        Client.add("xa_commit", TwoPhase::commit);
        Client.add("xa_rollback_and_one_phase", TwoPhase::rollbackAndOnePhase);
        Client.add("xa_recover_on_another_connection", TwoPhase::recover);
        Client.add("xa_unknown", TwoPhase::unknown);
    }

    private static XAConnection open() throws SQLException {
        PGXADataSource source = new PGXADataSource();
        source.setServerNames(new String[] {System.getenv("PGHOST")});
        source.setPortNumbers(new int[] {Integer.parseInt(System.getenv("PGPORT"))});
        source.setDatabaseName(System.getenv("PGDATABASE"));
        source.setUser(System.getenv("PGUSER"));
        source.setSslmode("disable");
        return source.getXAConnection();
    }

    private static void insert(XAConnection xa, Xid xid, String sql) throws Exception {
        XAResource resource = xa.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        try (Connection connection = xa.getConnection()) {
            Client.execute(connection, sql);
        }
        resource.end(xid, XAResource.TMSUCCESS);
    }

    private static Object commit(Connection connection) throws Exception {
        Client.execute(connection, "CREATE TABLE xa_c (id int PRIMARY KEY)");
        XAConnection xa = open();
        try {
            Xid xid = new Branch(7, "commit", "one");
            insert(xa, xid, "INSERT INTO xa_c VALUES (1)");
            int vote = xa.getXAResource().prepare(xid);
            Object before = Client.rows(connection, "SELECT id FROM xa_c");
            xa.getXAResource().commit(xid, false);
            return vote + " " + before + " " + Client.rows(connection, "SELECT id FROM xa_c");
        } finally {
            xa.close();
        }
    }

    private static Object rollbackAndOnePhase(Connection connection) throws Exception {
        Client.execute(connection, "CREATE TABLE xa_r (id int PRIMARY KEY)");
        XAConnection xa = open();
        try {
            Xid first = new Branch(7, "rollback", "one");
            insert(xa, first, "INSERT INTO xa_r VALUES (1)");
            xa.getXAResource().prepare(first);
            xa.getXAResource().rollback(first);
            Xid second = new Branch(7, "onephase", "one");
            insert(xa, second, "INSERT INTO xa_r VALUES (2)");
            xa.getXAResource().commit(second, true);
            Xid third = new Branch(7, "unprepared", "one");
            insert(xa, third, "INSERT INTO xa_r VALUES (3)");
            xa.getXAResource().rollback(third);
            return Client.rows(connection, "SELECT id FROM xa_r");
        } finally {
            xa.close();
        }
    }

    private static Object recover(Connection connection) throws Exception {
        Client.execute(connection, "CREATE TABLE xa_v (id int PRIMARY KEY)");
        Xid xid = new Branch(9, "recover", "one");
        XAConnection lost = open();
        insert(lost, xid, "INSERT INTO xa_v VALUES (1)");
        lost.getXAResource().prepare(xid);
        lost.close();
        XAConnection xa = open();
        try {
            Xid[] found = xa.getXAResource().recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
            String names = "";
            for (Xid one : found) {
                names += one.getFormatId() + ":" + new String(one.getGlobalTransactionId()) + " ";
                xa.getXAResource().commit(one, false);
            }
            int left = xa.getXAResource().recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN).length;
            return names + left + " " + Client.rows(connection, "SELECT id FROM xa_v");
        } finally {
            xa.close();
        }
    }

    private static Object unknown(Connection connection) throws Exception {
        XAConnection xa = open();
        try {
            xa.getXAResource().commit(new Branch(7, "nobody", "knows"), false);
            return "no error";
        } catch (XAException error) {
            return error.errorCode;
        } finally {
            xa.close();
        }
    }
}
