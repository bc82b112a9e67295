//! Lines, fields and tokens of `pg_hba.conf` and `pg_ident.conf`, as PostgreSQL reads them.
//!
//! | text | what |
//! |---|---|
//! | `#` outside quotes | a comment, to the end of the line |
//! | `\` at the end of a line | the line continues on the next one |
//! | blanks | end a field |
//! | `,` | separates the tokens of a field; blanks may follow it |
//! | `"..."` | blanks, commas and `#` in it are of the token; `""` is one quote; the token is never a keyword |
//!
//! Failure: a token or a file that exceeds its limit is an error with its line; the other lines are read.

/// Longest token in bytes (PostgreSQL's MAX_TOKEN).
const TOKEN_BYTES_MAX: usize = 256;

/// Lines with content in one file.
pub const LINES_MAX: usize = 10_000;

/// One token of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    /// It began with a quote.
    pub quoted: bool,
}

impl Token {
    /// Whether it is this keyword.
    pub fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// The tokens between two blanks.
pub type Field = Vec<Token>;

/// A line that has any field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1; the first of the lines that a backslash joins.
    pub number: u32,
    pub fields: Result<Vec<Field>, String>,
}

/// The lines of a file that are not empty and not comments.
pub fn lines(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut physical = text.split('\n').zip(1u32..);
    while let Some((line, number)) = physical.next() {
        let mut whole = line.trim_end_matches('\r').to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            let Some((next, _)) = physical.next() else { break };
            whole.push_str(next.trim_end_matches('\r'));
        }
        match fields(&whole) {
            Ok(fields) if fields.is_empty() => {}
            fields => found.push(Line { number, fields }),
        }
        if found.len() > LINES_MAX {
            let message = format!("the file has more than {LINES_MAX} lines with entries");
            found.truncate(LINES_MAX);
            found.push(Line { number, fields: Err(message) });
            break;
        }
    }
    found
}

fn fields(line: &str) -> Result<Vec<Field>, String> {
    let (mut rest, mut fields) = (line, Vec::new());
    loop {
        let mut field = Field::new();
        let mut comma = true;
        while comma {
            let Some((token, after, more)) = token(rest)? else { break };
            (rest, comma) = (after, more);
            field.push(token);
        }
        if field.is_empty() {
            return Ok(fields);
        }
        fields.push(field);
    }
}

/// The next token, what follows it, and whether a comma ended it.
fn token(text: &str) -> Result<Option<(Token, &str, bool)>, String> {
    let text = text.trim_start_matches(|c: char| is_blank(c) || c == ',');
    let (mut found, mut quoted, mut in_quotes, mut was_quote, mut any_quote) =
        (String::new(), false, false, false, false);
    let mut comma = false;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        if !in_quotes && is_blank(c) {
            end = at;
            break;
        }
        if !in_quotes && c == '#' {
            // The rest is a comment.
            end = text.len();
            break;
        }
        if !in_quotes && c == ',' {
            (comma, end) = (true, at + 1);
            break;
        }
        if c != '"' || was_quote {
            found.push(c);
        }
        was_quote = in_quotes && c == '"' && !was_quote;
        if c == '"' {
            in_quotes = !in_quotes;
            any_quote = true;
            quoted |= found.is_empty();
        }
        if found.len() >= TOKEN_BYTES_MAX {
            return Err(format!("authentication file token too long: the limit is {TOKEN_BYTES_MAX} bytes"));
        }
    }
    if found.is_empty() && !any_quote {
        return Ok(None);
    }
    Ok(Some((Token { text: found, quoted }, &text[end..], comma)))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<Vec<String>> {
        let shown = |t: &Token| if t.quoted { format!("<{}>", t.text) } else { t.text.clone() };
        fields(line).unwrap().iter().map(|f| f.iter().map(shown).collect()).collect()
    }

    #[test]
    fn fields_are_split_as_postgresql_splits_them() {
        assert_eq!(read("local all  all\tpeer"), [["local"], ["all"], ["all"], ["peer"]]);
        assert_eq!(read("host a,b c"), [vec!["host"], vec!["a", "b"], vec!["c"]]);
        assert_eq!(read("host a, b c"), [vec!["host"], vec!["a", "b"], vec!["c"]], "blanks after a comma");
        assert_eq!(read("a ,b"), [["a"], ["b"]], "but not before it");
        assert_eq!(read(r##"x "a b","c#d" # e"##), [vec!["x"], vec!["<a b>", "<c#d>"]]);
        assert_eq!(read(r#""say ""hi""""#), [["<say \"hi\">"]]);
        assert_eq!(read(r#""all" """" +"g h""#), [["<all>"], ["<\">"], ["+g h"]]);
        assert_eq!(read("a#b"), [["a"]]);
        assert_eq!(read(r#""open ended"#), [["<open ended>"]]);
        assert_eq!(read("  # nothing"), Vec::<Vec<String>>::new());
        assert_eq!(read(r#""""#), [["<>"]], "an empty name");
    }

    #[test]
    fn lines_have_numbers_and_may_continue() {
        let all = lines("# c\n\nlocal all \\\n  all peer\r\nhost x");
        let numbers: Vec<(u32, usize)> = all.iter().map(|l| (l.number, l.fields.as_ref().unwrap().len())).collect();
        assert_eq!(numbers, [(3, 4), (5, 2)]);
        assert_eq!(lines("a \\").len(), 1, "a backslash at the end of the file");
    }

    #[test]
    fn limits_are_errors_of_their_line() {
        let long = format!("local all {} trust\nlocal all all peer", "x".repeat(256));
        let all = lines(&long);
        assert!(all[0].fields.as_ref().unwrap_err().contains("too long") && all[1].fields.is_ok());
        let many = lines(&"x\n".repeat(LINES_MAX + 50));
        assert_eq!(many.len(), LINES_MAX + 1);
        assert!(many.last().unwrap().fields.is_err());
    }
}
