//! Cursors (DECLARE, FETCH, MOVE, CLOSE) and two-phase commit (PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK
//! PREPARED). They are read from their tokens, because the parser knows few of their forms.
//!
//! A cursor's query stays text; it is translated when the cursor is opened. A form that PostgreSQL does not have is
//! 42601.

use crate::command::{FetchCount, FetchDirection, Kind};
use crate::parse;
use crate::translated::Translated;
use crate::words::Words;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The largest number of bytes in a transaction identifier, as in PostgreSQL.
const GID_BYTES_MAX: usize = 199;

/// Translates a text that begins with DECLARE, FETCH, MOVE or CLOSE.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    if words.accept(&["DECLARE"]) {
        return declare(text, words);
    }
    if words.accept(&["CLOSE"]) {
        let all = words.accept(&["ALL"]);
        let name = if all { None } else { Some(words.name()?) };
        words.end()?;
        let verb = if all { "CLOSE CURSOR ALL" } else { "CLOSE CURSOR" };
        return Ok(Translated::command(Kind::CloseCursor(name), verb));
    }
    let moves = words.accept(&["MOVE"]);
    if !moves && !words.accept(&["FETCH"]) {
        return Err(words.syntax());
    }
    let (direction, name) = fetch(&mut words)?;
    let verb = if moves { "MOVE" } else { "FETCH" };
    let command = Translated::command(Kind::Fetch { name, direction, moves }, verb);
    Ok(Translated { counts: true, cacheable: false, ..command })
}

/// Reads what follows DECLARE.
fn declare(text: &str, mut words: Words<'_>) -> SqlResult<Translated> {
    let name = words.name()?;
    let (mut scroll, mut sensitivity) = (None, None);
    loop {
        if words.accept(&["NO", "SCROLL"]) {
            once(&mut scroll, false, "SCROLL and NO SCROLL")?;
        } else if words.accept(&["SCROLL"]) {
            once(&mut scroll, true, "SCROLL and NO SCROLL")?;
        } else if words.accept(&["INSENSITIVE"]) {
            once(&mut sensitivity, false, "INSENSITIVE and ASENSITIVE")?;
        } else if words.accept(&["ASENSITIVE"]) {
            once(&mut sensitivity, true, "INSENSITIVE and ASENSITIVE")?;
        } else if words.peek("BINARY") {
            return Err(
                SqlError::unsupported("a BINARY cursor").with_hint("Use a portal of the extended query protocol.")
            );
        } else {
            break;
        }
    }
    if !words.accept(&["CURSOR"]) {
        return Err(words.syntax());
    }
    let hold = words.accept(&["WITH", "HOLD"]);
    if !hold {
        words.accept(&["WITHOUT", "HOLD"]);
    }
    let is_query = words.accept(&["FOR"])
        && (["SELECT", "WITH", "VALUES", "TABLE"].iter().any(|w| words.peek(w))
            || words.token() == Some(&Token::LParen));
    let Some(first) = words.whole().filter(|_| is_query) else { return Err(words.syntax()) };
    let query = from_token(text, first).to_owned();
    let command = Translated::command(Kind::DeclareCursor { name, hold, scroll, query }, "DECLARE CURSOR");
    Ok(Translated { cacheable: false, ..command })
}

fn once(option: &mut Option<bool>, value: bool, both: &str) -> SqlResult<()> {
    if option.is_some_and(|before| before != value) {
        return Err(SqlError::new(SqlState("42P11"), format!("cannot specify both {both}")));
    }
    *option = Some(value);
    Ok(())
}

/// The text from this token on.
fn from_token<'t>(text: &'t str, token: &TokenWithSpan) -> &'t str {
    let characters = parse::position(text, token.span.start) as usize - 1;
    text.char_indices().nth(characters).map_or("", |(at, _)| &text[at..])
}

/// Reads what follows FETCH or MOVE.
fn fetch(words: &mut Words<'_>) -> SqlResult<(FetchDirection, String)> {
    let begun = words.at;
    let direction = direction(words);
    if words.token().is_none() {
        // A cursor may have the name of a direction.
        words.at = begun;
        let name = words.name()?;
        words.end()?;
        return Ok((FetchDirection::Next, name));
    }
    let direction = direction?;
    if !words.accept(&["FROM"]) {
        words.accept(&["IN"]);
    }
    let name = words.name()?;
    words.end()?;
    Ok((direction, name))
}

fn direction(words: &mut Words<'_>) -> SqlResult<FetchDirection> {
    use FetchDirection as D;
    let one = D::Forward(FetchCount::Rows(1));
    Ok(if words.accept(&["NEXT"]) {
        D::Next
    } else if words.accept(&["PRIOR"]) {
        D::Prior
    } else if words.accept(&["FIRST"]) {
        D::First
    } else if words.accept(&["LAST"]) {
        D::Last
    } else if words.accept(&["ABSOLUTE"]) {
        D::Absolute(number(words)?)
    } else if words.accept(&["RELATIVE"]) {
        D::Relative(number(words)?)
    } else if words.accept(&["FORWARD"]) {
        counted(words)?.unwrap_or(one)
    } else if words.accept(&["BACKWARD"]) {
        match counted(words)?.unwrap_or(one) {
            D::Forward(count) => D::Backward(count),
            D::Backward(count) => D::Forward(count),
            other => other,
        }
    } else {
        counted(words)?.unwrap_or(D::Next)
    })
}

/// Reads ALL or a number of rows, if one is next.
fn counted(words: &mut Words<'_>) -> SqlResult<Option<FetchDirection>> {
    if words.accept(&["ALL"]) {
        return Ok(Some(FetchDirection::Forward(FetchCount::All)));
    }
    if !matches!(words.token(), Some(Token::Number(..) | Token::Minus | Token::Plus)) {
        return Ok(None);
    }
    let n = number(words)?;
    let rows = FetchCount::Rows(n.unsigned_abs());
    Ok(Some(if n < 0 { FetchDirection::Backward(rows) } else { FetchDirection::Forward(rows) }))
}

/// Reads an integer with or without a sign, of 32 bits as in PostgreSQL.
fn number(words: &mut Words<'_>) -> SqlResult<i64> {
    let negative = words.take(&Token::Minus);
    if !negative {
        words.take(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = words.token() else { return Err(words.syntax()) };
    let n: i32 = digits.parse().map_err(|_| words.syntax())?;
    words.at += 1;
    Ok(if negative { -i64::from(n) } else { i64::from(n) })
}

/// PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED.
pub fn two_phase(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    let (kind, verb): (fn(String) -> Kind, _) = if words.accept(&["PREPARE", "TRANSACTION"]) {
        (Kind::PrepareTransaction, "PREPARE TRANSACTION")
    } else if words.accept(&["COMMIT", "PREPARED"]) {
        (Kind::CommitPrepared, "COMMIT PREPARED")
    } else if words.accept(&["ROLLBACK", "PREPARED"]) {
        (Kind::RollbackPrepared, "ROLLBACK PREPARED")
    } else {
        return Err(words.syntax());
    };
    let Some(Token::SingleQuotedString(gid) | Token::EscapedStringLiteral(gid)) = words.token() else {
        return Err(words.syntax());
    };
    words.at += 1;
    words.end()?;
    if gid.len() > GID_BYTES_MAX && verb == "PREPARE TRANSACTION" {
        let message = format!("transaction identifier \"{gid}\" is too long");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(Translated { cacheable: false, ..Translated::command(kind(gid.clone()), verb) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(text: &str) -> (FetchDirection, String) {
        match translate(text).unwrap_or_else(|e| panic!("{text}: {e:?}")).kind {
            Kind::Fetch { name, direction, .. } => (direction, name),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn directions() {
        use FetchDirection as D;
        let rows = FetchCount::Rows;
        for (text, direction, name) in [
            ("fetch c", D::Next, "c"),
            ("fetch from C", D::Next, "c"),
            ("move in \"C x\"", D::Next, "C x"),
            ("fetch next from c", D::Next, "c"),
            ("fetch prior c", D::Prior, "c"),
            ("fetch first in c", D::First, "c"),
            ("move last c", D::Last, "c"),
            ("fetch absolute -3 c", D::Absolute(-3), "c"),
            ("fetch relative +2 from c", D::Relative(2), "c"),
            ("fetch 5 c", D::Forward(rows(5)), "c"),
            ("fetch -5 from c", D::Backward(rows(5)), "c"),
            ("fetch all c", D::Forward(FetchCount::All), "c"),
            ("fetch forward c", D::Forward(rows(1)), "c"),
            ("fetch forward 0 c", D::Forward(rows(0)), "c"),
            ("move forward all in c", D::Forward(FetchCount::All), "c"),
            ("fetch backward 2 c", D::Backward(rows(2)), "c"),
            ("fetch backward -2 c", D::Forward(rows(2)), "c"),
            ("move backward all from c", D::Backward(FetchCount::All), "c"),
            ("fetch next", D::Next, "next"),
            ("fetch absolute", D::Next, "absolute"),
        ] {
            assert_eq!(fetched(text), (direction, name.to_owned()), "{text}");
        }
        assert!(matches!(
            translate("move c").unwrap(),
            Translated { kind: Kind::Fetch { moves: true, .. }, verb: "MOVE", .. }
        ));
        for text in
            ["fetch", "fetch 1.5 c", "fetch forward forward c", "fetch 3000000000 c", "fetch c d", "fetch absolute c"]
        {
            assert_eq!(translate(text).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{text}");
        }
    }

    #[test]
    fn cursors_keep_the_text_of_their_query() {
        let declared = |text: &str| translate(text).unwrap().kind;
        let cursor = |name: &str, hold, scroll, query: &str| Kind::DeclareCursor {
            name: name.into(),
            hold,
            scroll,
            query: query.into(),
        };
        assert_eq!(declared("declare C cursor for select 'é', 1 -- x"), cursor("c", false, None, "select 'é', 1 -- x"));
        assert_eq!(
            declared("declare \"é\"\n insensitive no scroll cursor /* for */ with hold for\n (values (1))"),
            cursor("é", true, Some(false), "(values (1))")
        );
        assert_eq!(
            declared("declare c scroll cursor without hold for with x as (select 1) select * from x for update"),
            cursor("c", false, Some(true), "with x as (select 1) select * from x for update")
        );
        let state = |text: &str| translate(text).unwrap_err().state().0;
        assert_eq!(state("declare c scroll no scroll cursor for select 1"), "42P11");
        assert_eq!(state("declare c binary cursor for select 1"), "0A000");
        assert_eq!(state("declare c cursor for insert into t values (1)"), "42601");
        assert_eq!(state("declare c cursor"), "42601");
        assert_eq!(state("declare \"\" cursor for select 1"), "42601");
        assert_eq!(declared("close c"), Kind::CloseCursor(Some("c".into())));
        assert_eq!(declared("close all"), Kind::CloseCursor(None));
        assert_eq!(declared("close \"all\""), Kind::CloseCursor(Some("all".into())));
    }

    #[test]
    fn two_phase_commit() {
        assert_eq!(two_phase("prepare transaction 'it''s'").unwrap().kind, Kind::PrepareTransaction("it's".into()));
        assert_eq!(two_phase("COMMIT PREPARED 'x'").unwrap().kind, Kind::CommitPrepared("x".into()));
        assert_eq!(two_phase("rollback prepared 'x'").unwrap().kind, Kind::RollbackPrepared("x".into()));
        assert_eq!(two_phase("prepare transaction x").unwrap_err().state().0, "42601");
        assert_eq!(two_phase("commit prepared 'x' now").unwrap_err().state().0, "42601");
        assert!(two_phase(&format!("prepare transaction '{}'", "x".repeat(199))).is_ok());
        assert_eq!(two_phase(&format!("prepare transaction '{}'", "x".repeat(200))).unwrap_err().state().0, "22023");
    }
}
