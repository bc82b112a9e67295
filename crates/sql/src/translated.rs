//! The result of a translation: [`Translated`].

use crate::command::Kind;
use crate::facts::facts;
use crate::params::{Param, ParamSource, SessionValues};
use crate::scan::Literal;
use holdfast_types::access::Access;
use holdfast_types::{OnCommit, RowLock, SqlResult, SqlState, StatementDesc, StatementFacts, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// A statement in SQLite's SQL with all that is needed to run it and to describe it.
#[derive(Clone, Debug, Default)]
pub struct Translated {
    pub kind: Kind,
    /// SQLite statements, one each, to be run in order in one transaction. The last one returns the rows and
    /// takes the parameters. Empty where there is nothing to run.
    pub steps: Vec<TranslatedStep>,
    /// Values of `?1`, `?2` ... of the last step.
    pub params: Vec<Param>,
    pub desc: Arc<StatementDesc>,
    /// The words of the command tag.
    pub verb: &'static str,
    /// The command tag has a row count.
    pub counts: bool,
    /// The statement locks rows (FOR UPDATE, FOR SHARE) or a table, or takes advisory locks, so its transaction is a
    /// writing transaction.
    pub locks: bool,
    /// The rows to lock as they are returned. The statement then has hidden columns after those of `desc.columns`.
    pub row_locks: Vec<RowLock>,
    /// The statement takes or releases advisory locks, through [`crate::ADVISORY_FUNCTION`].
    pub advisory: bool,
    /// The statement reads or sets the session's parameters while it runs.
    pub settings: bool,
    pub notices: Vec<Notice>,
    /// The statement names temporary tables of the session; unknown where the text is SQLite's own.
    pub temporary: bool,
    /// The statement creates, changes, drops or empties temporary tables of the session, and no other tables.
    pub temp: Option<TempDdl>,
    /// The text is SQLite's own: result columns are described with [`crate::sqlite::describe`] after it has been
    /// prepared.
    pub describe_after_prepare: bool,
    /// The privileges that it needs. What views and triggers touch comes on top, and where the text is SQLite's own,
    /// everything: SQLite reports that when it prepares the statement.
    pub access: Access,
    /// The server made the statement of the definitions of publications, for a role that may not read the table. Its errors must not
    /// show values.
    pub published: bool,
    /// What the statement touches itself is known only after it has been prepared.
    pub access_after_prepare: bool,
    pub(crate) cacheable: bool,
}

/// One statement of SQLite's SQL, with its facts.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedStep {
    pub sql: String,
    pub facts: StatementFacts,
}

impl From<String> for TranslatedStep {
    fn from(sql: String) -> TranslatedStep {
        TranslatedStep { facts: facts(&sql), sql }
    }
}

/// What a statement on the session's temporary tables means in addition to its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TempDdl {
    /// The table that the statement creates, and what happens to it at each commit.
    pub creates: Option<(String, OnCommit)>,
}

/// A NOTICE or WARNING that is sent with the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub severity: &'static str,
    pub state: SqlState,
    pub message: String,
}

impl Translated {
    pub(crate) fn command(kind: Kind, verb: &'static str) -> Translated {
        Translated { kind, verb, cacheable: true, ..Translated::default() }
    }

    /// The numbers of the literals of the text that are parameters, so that other values can replace them.
    pub fn lifted(&self) -> HashSet<usize> {
        let number = |p: &Param| if let ParamSource::Literal(i) = p.source { Some(i) } else { None };
        self.params.iter().filter_map(number).collect()
    }

    /// The values of the SQLite statement's parameters.
    pub fn bind(
        &self,
        literals: &[Literal<'_>],
        client: &[Value],
        session: &dyn SessionValues,
    ) -> SqlResult<Vec<Value>> {
        self.params.iter().map(|p| p.value(literals, client, session)).collect()
    }
}
