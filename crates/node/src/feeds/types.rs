//! What a feed takes from the server: types of columns, texts of values, the recorded shapes.

use holdfast_engine::Database;
use holdfast_sites::Types;
use holdfast_sql::types::{of_column, output};
use holdfast_store::shapes::Shapes;
use holdfast_types::schema::{self, Dialect};
use holdfast_types::{ColumnDesc, SqlResult, TableId, ValueRef};
use holdfast_wire::encode::text_value;

/// Those of one database.
pub struct DatabaseTypes(pub Database);

impl Types for DatabaseTypes {
    fn describe(&self, table: &schema::Table, column: &schema::Column) -> ColumnDesc {
        let ty = of_column(table, column, Dialect::Postgres);
        ColumnDesc { typmod: ty.typmod, ..ColumnDesc::new(&column.name, ty.oid) }
    }

    fn text(&self, value: ValueRef<'_>, column: &ColumnDesc, out: &mut Vec<u8>) {
        text_value(out, value, column, output);
    }

    fn shapes(&self) -> SqlResult<(Shapes, u32)> {
        self.0.shapes()
    }

    fn own_table(&self) -> Option<TableId> {
        self.0.slots_table()
    }
}
