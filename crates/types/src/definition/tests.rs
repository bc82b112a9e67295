use super::*;

fn parsed(sql: &str) -> Definition {
    Definition::parse(sql).unwrap_or_else(|| panic!("{sql}"))
}

#[test]
fn a_definition_is_put_together_as_it_was() {
    for sql in [
        "CREATE TABLE \"t\" (\"id\" INTEGER /*serial*/ PRIMARY KEY /*identity*/, \"a b\" varchar(5) NOT NULL DEFAULT 'x, (y', \
         \"c\" numeric_text(10,2) DEFAULT (1 + (2)) CONSTRAINT \"t_c_check\" CHECK (\"c\" > 0), \
         CONSTRAINT \"k\" FOREIGN KEY (\"c\", \"a b\") REFERENCES \"p\"(\"x\", \"y\") ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED /*not valid*/)",
        "CREATE TABLE \"t\" (\"a\", \"b\" AS (\"a\" + 1) STORED, PRIMARY KEY (\"a\")) WITHOUT ROWID",
    ] {
        assert_eq!(parsed(sql).sql(), sql);
    }
}

#[test]
fn clauses_are_told_apart() {
    let d = parsed(
        "create table if not exists main.t(a int default null not null, b text default -1 references p on update set default \
         not null collate nocase, c int default +5 constraint \"u\" unique on conflict ignore, check (a > 0), \
         constraint f foreign key(a) references [q q](z) not deferrable initially immediate match simple, d)",
    );
    assert_eq!(d.name, "t");
    let kinds = |name: &str| d.column(name).unwrap().clauses.iter().map(|c| c.kind.clone()).collect::<Vec<_>>();
    let p = Reference { parent: "p".into(), ..Reference::default() };
    assert_eq!(kinds("a"), [ClauseKind::Default, ClauseKind::NotNull]);
    assert_eq!(kinds("B"), [ClauseKind::Default, ClauseKind::ForeignKey(p), ClauseKind::NotNull, ClauseKind::Collate]);
    assert_eq!(kinds("c"), [ClauseKind::Default, ClauseKind::Unique(vec![])]);
    assert_eq!((d.column("a").unwrap().default(), d.column("b").unwrap().default()), (Some("null"), Some("-1")));
    let keys: Vec<_> = d.foreign_keys().map(|(c, r, columns)| (c.name.clone(), r.parent.clone(), columns)).collect();
    let q = (Some("f".to_owned()), "q q".to_owned(), vec!["a".to_owned()]);
    assert_eq!(keys, [(None, "p".to_owned(), vec!["b".to_owned()]), q]);
    assert_eq!(d.columns.len(), 4, "a column that was added behind the constraints");
}

#[test]
fn what_is_not_understood_has_no_definition() {
    for sql in [
        "create virtual table t using fts5(a)",
        "create view v as select 1",
        "create table t as select 1",
        "create table t(",
        "create table t(a int check)",
        "create table t(a, check (a > 0) check (a < 9))",
        "",
    ] {
        assert_eq!(Definition::parse(sql), None, "{sql}");
    }
}
