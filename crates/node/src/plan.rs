//! Prepared statements as a session keeps them.

use holdfast_engine::Statement;
use holdfast_sql::sqlite::OriginColumn;
use holdfast_sql::{Class, Entry, Kind, Literal, Piece, SessionValues, Translated};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlResult, StatementDesc, Value};
use std::sync::Arc;

/// The engine's statement, where it could be prepared before it runs.
pub type Extra = Option<Arc<Statement>>;

/// The text of a statement with what was derived from it under one schema.
#[derive(Clone)]
pub struct Plan {
    pub text: String,
    pub param_types: Vec<u32>,
    literals: Vec<(Class, String)>,
    /// Absent for an empty text.
    pub entry: Option<Arc<Entry<Extra>>>,
    pub desc: Arc<StatementDesc>,
    /// The schema it was made for: the plan is valid while that schema is in force.
    pub schema: Arc<Schema>,
    /// The query of a cursor that this declares.
    pub query: Option<Arc<Plan>>,
}

impl Plan {
    pub fn new(
        piece: Option<Piece<'_>>,
        param_types: &[u32],
        entry: Option<Arc<Entry<Extra>>>,
        schema: Arc<Schema>,
    ) -> Plan {
        let literals = piece.map(|p| p.literals().iter().map(|l| (l.class, l.raw.to_owned())).collect());
        Plan {
            text: piece.map(|p| p.text().to_owned()).unwrap_or_default(),
            param_types: param_types.to_vec(),
            literals: literals.unwrap_or_default(),
            desc: entry.as_ref().map(|e| e.translated.desc.clone()).unwrap_or_default(),
            entry,
            schema,
            query: None,
        }
    }

    /// The cursor of a FETCH or MOVE, and whether it is a MOVE.
    pub fn cursor(&self) -> Option<(&str, bool)> {
        match &self.entry.as_ref()?.translated.kind {
            Kind::Fetch { name, moves, .. } => Some((name, *moves)),
            _ => None,
        }
    }

    /// About how many bytes it keeps.
    pub fn bytes(&self) -> usize {
        let literals = self.literals.iter().map(|(_, raw)| raw.len()).sum::<usize>();
        let translated =
            self.entry.as_ref().map_or(0, |entry| entry.translated.steps.iter().map(|step| step.sql.len()).sum());
        let prepared = self.entry.as_ref().and_then(|e| e.extra.as_ref()).map_or(0, |stmt| stmt.sql.len());
        let query = self.query.as_ref().map_or(0, |query| query.bytes());
        size_of::<Plan>() + self.text.len() + literals + translated + prepared + query
    }

    /// The values of the SQLite statement's parameters.
    pub fn bind(&self, entry: &Entry<Extra>, client: &[Value], session: &dyn SessionValues) -> SqlResult<Vec<Value>> {
        if self.literals.is_empty() {
            return entry.translated.bind(&[], client, session);
        }
        let literals: Vec<Literal<'_>> =
            self.literals.iter().map(|(class, raw)| Literal { class: *class, raw }).collect();
        entry.translated.bind(&literals, client, session)
    }
}

/// Completes the description of a statement in SQLite's own SQL, whose columns are only known after preparing it.
/// `true` when it has changed: the statement carries its description to every sink and has to be prepared again.
pub fn complete(translated: &mut Translated, statement: &Statement, schema: &Schema) -> bool {
    if !translated.describe_after_prepare {
        return false;
    }
    let columns: Vec<OriginColumn> = statement
        .columns
        .iter()
        .map(|c| OriginColumn {
            name: c.name.clone(),
            decl_type: c.decl_type.clone(),
            table: c.table.clone(),
            column: c.column.clone(),
        })
        .collect();
    let columns = holdfast_sql::sqlite::describe(&statement.sql, &columns, schema);
    let params = translated.desc.params.clone();
    translated.desc = Arc::new(StatementDesc { params, columns, empty_rows: false });
    true
}
