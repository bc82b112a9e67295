//! PostgreSQL's result or an error, never another result: the statements of `oracle_cases/*.sql` run on a real
//! PostgreSQL and on the translation over SQLite, and rows, column names, types and SQLSTATEs are compared.
//!
//! Each line is a statement. `-- ` begins a comment; `refused: ` before a statement means that Holdfast returns 0A000.

use crate::common::Db;
use holdfast_testbed::oracle::Postgres;

fn compare(file: &str, text: &str, postgres: &Postgres) -> Vec<String> {
    let cases: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("--")).collect();
    let statements: Vec<&str> = cases.iter().map(|c| c.strip_prefix("refused: ").unwrap_or(c)).collect();
    let said = postgres.ask(&statements);
    assert_eq!(said.len(), statements.len(), "PostgreSQL stopped in {file}");
    let mut db = Db::postgres();
    let mut faults = Vec::new();
    for ((case, statement), said) in cases.iter().zip(&statements).zip(&said) {
        let refused = case.starts_with("refused: ");
        let fault = match db.run(statement) {
            Err(e) if refused && e.state().0 == "0A000" => None,
            Err(e) if !refused && e.state().0 == said.state => None,
            Err(e) => Some(format!("{e:?}, PostgreSQL {} {:?}", said.state, said.lines)),
            Ok(answer) if refused => Some(format!("was not refused: {answer:?}")),
            Ok(_) if said.state != "00000" => Some(format!("succeeded, PostgreSQL returned {}", said.state)),
            Ok(answer) if answer.lines() != said.lines => {
                Some(format!("{:?}\n    PostgreSQL {:?}", answer.lines(), said.lines))
            }
            Ok(answer) if !said.columns.is_empty() && answer.columns != said.columns => {
                Some(format!("{:?}\n    PostgreSQL {:?}", answer.columns, said.columns))
            }
            Ok(_) => None,
        };
        if let Some(fault) = fault {
            let steps = db.translate(statement).map(|t| t.steps);
            faults.push(format!("{statement}\n    {fault}\n    {steps:?}"));
        }
    }
    faults
}

#[test]
fn results_are_postgresqls_or_an_error() {
    let Some(postgres) = Postgres::start() else { return };
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle_cases");
    let mut faults = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6);
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let schema = "drop schema public cascade; create schema public";
        postgres.ask(&[schema]);
        faults.extend(
            compare(&name, &std::fs::read_to_string(&file).unwrap(), &postgres)
                .into_iter()
                .map(|f| format!("{name}: {f}")),
        );
    }
    assert!(faults.is_empty(), "{} differ:\n{}", faults.len(), faults.join("\n"));
}
