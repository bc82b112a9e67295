package holdfast;

import static holdfast.Client.add;
import static holdfast.Client.execute;

import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.util.ArrayList;
import java.util.List;

/** What tools and frameworks ask a driver about a database. */
final class Metadata {
    static void register() {
        add("metadata_tables", Metadata::tables);
        add("metadata_columns", Metadata::columns);
        add("metadata_primary_keys", Metadata::primaryKeys);
        add("metadata_of_a_result", Metadata::ofAResult);
        add("metadata_of_parameters", Metadata::ofParameters);
        add("metadata_product", c -> c.getMetaData().getDatabaseProductName() + " " + c.isValid(10) + " "
                + c.getCatalog().equals(System.getenv("PGDATABASE")) + " " + c.getSchema());
    }

    /** The named columns of each row of a metadata answer. */
    private static List<String> pick(ResultSet result, String... names) throws Exception {
        List<String> rows = new ArrayList<>();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            for (String name : names) {
                row.add(result.getString(name));
            }
            rows.add(row.toString());
        }
        return rows;
    }

    static Object tables(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE meta_a (id int PRIMARY KEY)", "CREATE TABLE meta_b (id int)",
                "CREATE VIEW meta_v AS SELECT id FROM meta_a");
        DatabaseMetaData data = connection.getMetaData();
        return pick(data.getTables(null, "public", "meta\\_%", new String[] {"TABLE", "VIEW"}), "TABLE_SCHEM", "TABLE_NAME",
                "TABLE_TYPE");
    }

    static Object columns(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE metacols (id serial PRIMARY KEY, name varchar(40) NOT NULL, n bigint, ok boolean DEFAULT true)");
        return pick(connection.getMetaData().getColumns(null, "public", "metacols", null), "COLUMN_NAME", "DATA_TYPE",
                "TYPE_NAME", "COLUMN_SIZE", "IS_NULLABLE", "COLUMN_DEF", "IS_AUTOINCREMENT");
    }

    static Object primaryKeys(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE metakeys (a int, b text, c int, PRIMARY KEY (b, a))");
        return pick(connection.getMetaData().getPrimaryKeys(null, "public", "metakeys"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME");
    }

    static Object ofAResult(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE metares (id int PRIMARY KEY, name varchar(40), f float8)");
        try (PreparedStatement select = connection.prepareStatement("SELECT id, name AS alias, f, count(*) OVER () FROM metares")) {
            ResultSetMetaData data = select.getMetaData();
            List<String> columns = new ArrayList<>();
            for (int i = 1; i <= data.getColumnCount(); i++) {
                columns.add(data.getColumnLabel(i) + " " + data.getColumnTypeName(i) + " " + data.getColumnClassName(i) + " "
                        + data.getTableName(i) + " " + data.getPrecision(i));
            }
            return columns;
        }
    }

    static Object ofParameters(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE metapar (id int PRIMARY KEY, name text)");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO metapar VALUES (?, ?)")) {
            ParameterMetaData data = insert.getParameterMetaData();
            return data.getParameterCount() + " " + data.getParameterTypeName(1) + " " + data.getParameterTypeName(2);
        }
    }
}
