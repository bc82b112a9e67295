//! The identity of a statement in `pg_stat_statements`: its text with every constant replaced by `$1`, `$2` ..., and a
//! number computed from its words.
//!
//! Statements that differ only in constants, blanks, comments or the case of unquoted words have one identity. PostgreSQL
//! computes it from the analysed query, so that there `t.a` and `a`, other aliases and more parentheses make no difference,
//! and the types of constants do; here they do, and the types do not.
//!
//! | token | in the text | in the number |
//! |---|---|---|
//! | number, string, TRUE, FALSE, NULL as a value | `$n`, after the numbers of the statement's own parameters | one mark for all |
//! | a minus sign before a number that it belongs to | part of the constant | part of the constant |
//! | NULL, TRUE, FALSE after IS or NOT; a position after ORDER BY or GROUP BY; a type's modifier | as written | as written |
//! | word, quoted word | as written | without quotes, an unquoted one in lower case |
//! | blank, comment | as written | nothing |
//!
//! A command that is not a query (SET, CREATE ...) keeps its text, as in PostgreSQL, without the password of a role
//! ([`without_secrets`](crate::without_secrets)).

use crate::scan::Piece;
use crate::tokens::{TokenKind, tokens};
use xxhash_rust::xxh3::Xxh3;

/// Words after which a minus sign has no left operand.
const BEFORE_OPERANDS: &[&str] = &[
    "select",
    "where",
    "and",
    "or",
    "not",
    "then",
    "else",
    "when",
    "between",
    "in",
    "values",
    "return",
    "returning",
    "limit",
    "offset",
    "set",
    "by",
    "on",
    "having",
    "like",
    "ilike",
    "case",
    "distinct",
    "all",
    "using",
    "from",
    "for",
    "as",
    "default",
    "is",
    "any",
    "some",
    "if",
    "with",
];

/// Types whose modifier in parentheses is a part of the type.
const MODIFIED_TYPES: &[&str] = &[
    "numeric",
    "decimal",
    "dec",
    "varchar",
    "char",
    "character",
    "varying",
    "bpchar",
    "bit",
    "float",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
];

/// Words that end a list of ORDER BY or GROUP BY.
const AFTER_BY_LISTS: &[&str] = &[
    "having",
    "limit",
    "offset",
    "fetch",
    "for",
    "window",
    "union",
    "intersect",
    "except",
    "where",
    "order",
    "select",
];

/// A statement's token with what the text is searched for.
struct Token<'t> {
    kind: TokenKind,
    text: &'t str,
    start: usize,
    /// Of an unquoted word, in lower case.
    word: String,
}

/// The number of a statement that is a query or changes rows: equal for statements that differ only in constants.
pub fn query_id(piece: &Piece<'_>) -> i64 {
    let tokens = read(piece);
    let mut hash = Xxh3::new();
    let mut from = 0;
    for constant in constants(&tokens) {
        feed(&mut hash, &tokens[from..constant.first]);
        hash.update(&[1, 0]);
        from = constant.last + 1;
    }
    feed(&mut hash, &tokens[from..]);
    number(hash.digest())
}

/// The number of a command that is identified by its text.
pub fn text_id(text: &str) -> i64 {
    number(xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// 0 means "none".
fn number(hash: u64) -> i64 {
    if hash == 0 { 1 } else { hash as i64 }
}

fn feed(hash: &mut Xxh3, tokens: &[Token<'_>]) {
    for token in tokens {
        match token.kind {
            TokenKind::Word => hash.update(token.word.as_bytes()),
            TokenKind::Quoted => hash.update(token.text.trim_matches('"').replace("\"\"", "\"").as_bytes()),
            _ => hash.update(token.text.as_bytes()),
        }
        hash.update(&[0]);
    }
}

/// The text of a statement with `$n` for its constants.
pub fn normalized(piece: &Piece<'_>) -> String {
    let (text, tokens) = (piece.text(), read(piece));
    let own = tokens.iter().filter(|t| t.kind == TokenKind::Param).filter_map(|t| t.text[1..].parse::<u32>().ok());
    let mut next = own.max().unwrap_or(0);
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for constant in constants(&tokens) {
        let (first, last) = (&tokens[constant.first], &tokens[constant.last]);
        next += 1;
        out.push_str(&text[from..first.start]);
        out.push_str(&format!("${next}"));
        from = last.start + last.text.len();
    }
    out.push_str(&text[from..]);
    out
}

fn read<'t>(piece: &Piece<'t>) -> Vec<Token<'t>> {
    let text = piece.text();
    let token = |(kind, start, end): (TokenKind, usize, usize)| {
        let word = if kind == TokenKind::Word { text[start..end].to_lowercase() } else { String::new() };
        Token { kind, text: &text[start..end], start, word }
    };
    tokens(text, piece.dialect()).into_iter().map(token).collect()
}

/// The tokens of a constant: a sign and a number, or one token.
struct Constant {
    first: usize,
    last: usize,
}

/// What surrounds a token.
#[derive(Default)]
struct Place {
    /// For each open parenthesis: whether it holds a type's modifier, and whether it is OVER's.
    open: Vec<(bool, bool)>,
    /// Within a list of ORDER BY or GROUP BY at this depth.
    by_list: Option<usize>,
}

impl Place {
    fn step(&mut self, tokens: &[Token<'_>], i: usize) {
        let token = &tokens[i];
        let before = |n: usize| i.checked_sub(n).map_or("", |j| tokens[j].word.as_str());
        match (token.kind, token.text) {
            (_, "(") => self.open.push((MODIFIED_TYPES.contains(&before(1)), before(1) == "over")),
            (_, ")") => {
                self.open.pop();
                self.by_list = self.by_list.filter(|depth| *depth <= self.open.len());
            }
            (TokenKind::Word, _) if token.word == "by" && matches!(before(1), "order" | "group") => {
                let in_window = self.open.last().is_some_and(|(_, over)| *over);
                self.by_list = (!in_window).then_some(self.open.len());
            }
            (TokenKind::Word, _) if AFTER_BY_LISTS.contains(&token.word.as_str()) => self.by_list = None,
            _ => {}
        }
    }

    fn is_modifier(&self) -> bool {
        self.open.last().is_some_and(|(modifier, _)| *modifier)
    }

    /// Whether the number at `i` is a whole item of a list of ORDER BY or GROUP BY, which means a column of the result.
    fn is_position(&self, tokens: &[Token<'_>], i: usize) -> bool {
        if self.by_list != Some(self.open.len()) || tokens[i].kind != TokenKind::Number {
            return false;
        }
        let begins = i > 0 && (tokens[i - 1].word == "by" || tokens[i - 1].text == ",");
        let ends = tokens.get(i + 1).is_none_or(|t| matches!(t.text, "," | ")") || t.kind == TokenKind::Word);
        begins && ends
    }
}

fn constants(tokens: &[Token<'_>]) -> Vec<Constant> {
    let (mut found, mut place) = (Vec::new(), Place::default());
    for i in 0..tokens.len() {
        place.step(tokens, i);
        let is_constant = match tokens[i].kind {
            TokenKind::Number => !place.is_modifier() && !place.is_position(tokens, i),
            TokenKind::String => true,
            TokenKind::Word => is_value(tokens, i),
            _ => false,
        };
        if is_constant {
            let signed = tokens[i].kind == TokenKind::Number && has_sign(tokens, i);
            found.push(Constant { first: i - usize::from(signed), last: i });
        }
    }
    found
}

/// Whether the word is a constant: NULL, TRUE or FALSE as a value; or the field of EXTRACT.
fn is_value(tokens: &[Token<'_>], i: usize) -> bool {
    let before = |n: usize| i.checked_sub(n).map_or("", |j| tokens[j].word.as_str());
    match tokens[i].word.as_str() {
        "null" | "true" | "false" => before(1) != "is" && !(before(1) == "not" && before(2) == "is"),
        _ => i >= 2 && before(2) == "extract" && tokens[i - 1].text == "(",
    }
}

/// Whether the token before a number is its sign: a minus without a left operand, before nothing that binds closer.
fn has_sign(tokens: &[Token<'_>], i: usize) -> bool {
    if i == 0 || tokens[i - 1].text != "-" || tokens.get(i + 1).is_some_and(|t| t.text == ":") {
        return false;
    }
    match i.checked_sub(2).map(|j| &tokens[j]) {
        None => true,
        Some(t) if t.kind == TokenKind::Word => BEFORE_OPERANDS.contains(&t.word.as_str()),
        Some(t) => t.kind == TokenKind::Other && !matches!(t.text, ")" | "]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;
    use holdfast_types::schema::Dialect;

    fn both(sql: &str) -> (String, i64) {
        let scan = Scan::new(sql, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        (normalized(&piece), query_id(&piece))
    }

    /// Texts as PostgreSQL 15 shows them.
    #[test]
    fn constants_become_parameters() {
        for (sql, text) in [
            ("select 'a', 1.5, null, true", "select $1, $2, $3, $4"),
            ("select -5, - 5, 1 -5, 2 - 3, -5::int, (-7)", "select $1, $2, $3 -$4, $5 - $6, -$7::int, ($8)"),
            ("select oid from c order by 1 limit 1", "select oid from c order by 1 limit $1"),
            (
                "select cast('1' as numeric(10,2)), '5'::varchar(20), 5::numeric(3,1), interval '1 day'",
                "select cast($1 as numeric(10,2)), $2::varchar(20), $3::numeric(3,1), interval $4",
            ),
            (
                "select 1 where null is null and true is true and 'a' is not null",
                "select $1 where $2 is null and $3 is true and $4 is not null",
            ),
            ("select array[1,2], E'a\\n', $$dollar$$, x'1f'", "select array[$1,$2], $3, $4, $5"),
            (
                "select row_number() over (partition by a order by 1) from c",
                "select row_number() over (partition by a order by $1) from c",
            ),
            ("select not true, false", "select not $1, $2"),
            ("select extract(year from x)", "select extract($1 from x)"),
            ("update t set a = $2, b = 5 where c = $1", "update t set a = $2, b = $3 where c = $1"),
            ("select 1 /* one */, 2 -- two", "select $1 /* one */, $2 -- two"),
        ] {
            assert_eq!(both(sql).0, text);
        }
    }

    #[test]
    fn what_differs_only_in_constants_blanks_and_case_is_one() {
        let id = |sql: &str| both(sql).1;
        assert_eq!(id("select a from t where b = 1"), id("SELECT  A\nFROM t /* c */ WHERE \"b\" = -17"));
        assert_eq!(id("select 1"), id("select 'x'"));
        assert_ne!(id("select a from t order by 1"), id("select a from t order by 2"));
        assert_ne!(id("select a from t where b in (1, 2)"), id("select a from t where b in (1, 2, 3)"));
        assert_ne!(id("select $1"), id("select 1"));
        assert_ne!(id("select a from t"), id("select a from u"));
        assert_ne!(id("select ab"), id("select a b"));
    }
}
