//! The card authorization of the study (R. Carr, "Best Practices: Using TMF to Implement BC/DR"): its two files, its
//! requests, its statements.
//!
//! A terminal definition is read by an alternate key and locked, updated, and a row is inserted into the transaction
//! log. Record lengths are the study's, counted as the bytes of the column values: integers 8 bytes each, text its
//! characters. Fillers are printable text that does not compress away, so that a server which compresses long values
//! gains nothing an application's data would not give it.
//!
//! Everything is drawn from a seed: the same seed gives the same rows and the same requests.

/// Terminal definitions in the terminal file.
pub const TERMINALS: u64 = 10_000;
/// Bytes of a terminal definition.
pub const TERMINAL_BYTES: usize = 4072;
/// Bytes of a transaction log record.
pub const LOG_BYTES: usize = 998;

/// Sites the terminals stand at: the terminal file's second alternate key has 20 terminals a site.
const SITES: u64 = 500;

const TERM_NO_CHARS: usize = 8;
const SITE_CHARS: usize = 6;
const CARD_CHARS: usize = 16;
const AUTH_CODE_CHARS: usize = 7;
/// id, approved_count, last_at.
const TERMINAL_INTEGERS: usize = 3;
/// id, at.
const LOG_INTEGERS: usize = 2;

const PROFILE_CHARS: usize = TERMINAL_BYTES - TERMINAL_INTEGERS * 8 - TERM_NO_CHARS - SITE_CHARS;
const BODY_CHARS: usize = LOG_BYTES - LOG_INTEGERS * 8 - CARD_CHARS - TERM_NO_CHARS - AUTH_CODE_CHARS;

/// The two files in SQLite's words. The record number of the relative file and the entry number of the
/// entry-sequenced file are the row ids.
pub const SCHEMA_SQLITE: &str = "\
create table terminal (id integer primary key, term_no text not null unique, site text not null, \
approved_count integer not null, last_at integer not null, profile text not null);
create index terminal_site on terminal (site);
create table txn_log (id integer primary key, card text not null, term_no text not null, auth_code text not null, \
at integer not null, body text not null);
create index txn_log_card on txn_log (card);
create index txn_log_term_no on txn_log (term_no);
create index txn_log_auth_code on txn_log (auth_code);
create index txn_log_at on txn_log (at);";

/// The tables in PostgreSQL's words; the indexes follow the load, see [`INDEXES_POSTGRES`].
pub const TABLES_POSTGRES: [&str; 3] = [
    "create table terminal (id bigint primary key, term_no text not null unique, site text not null, \
     approved_count bigint not null, last_at bigint not null, profile text not null)",
    "create table txn_log (id bigserial primary key, card text not null, term_no text not null, \
     auth_code text not null, at bigint not null, body text not null)",
    "create table receipt (id bigserial primary key, amount bigint not null, note text not null)",
];

/// The alternate keys, made after the rows are in.
pub const INDEXES_POSTGRES: [&str; 5] = [
    "create index terminal_site on terminal (site)",
    "create index txn_log_card on txn_log (card)",
    "create index txn_log_term_no on txn_log (term_no)",
    "create index txn_log_auth_code on txn_log (auth_code)",
    "create index txn_log_at on txn_log (at)",
];

/// Step 2: read by alternate key. `lock` adds PostgreSQL's row lock; where one writer runs at a time the record is
/// locked already.
pub fn select_sql(parameter: &str, lock: bool) -> String {
    let lock = if lock { " for update" } else { "" };
    format!("select id, approved_count, last_at from terminal where term_no = {parameter}{lock}")
}

/// Step 4: update the record.
pub fn update_sql(at: &str, term_no: &str) -> String {
    format!("update terminal set approved_count = approved_count + 1, last_at = {at} where term_no = {term_no}")
}

/// Step 5: insert the log record; `values` are card, term_no, auth_code, at, body.
pub fn insert_sql(values: [&str; 5]) -> String {
    format!("insert into txn_log (card, term_no, auth_code, at, body) values ({})", values.join(", "))
}

/// A report that reads the whole log.
pub const REPORT_SQL: &str =
    "select term_no, count(*), sum(at), max(auth_code) from txn_log group by term_no order by 2 desc, 1 limit 10";

/// Loads a terminal; parameters in column order.
pub const LOAD_TERMINAL_SQLITE: &str = "insert into terminal values (?1, ?2, ?3, ?4, ?5, ?6)";
/// Loads a log record; parameters in column order.
pub const LOAD_LOG_SQLITE: &str = "insert into txn_log values (?1, ?2, ?3, ?4, ?5, ?6)";

/// A row of the terminal file.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    pub id: i64,
    pub term_no: String,
    pub site: String,
    pub approved_count: i64,
    pub last_at: i64,
    pub profile: String,
}

/// One authorization request, and the row it writes to the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub card: String,
    pub term_no: String,
    pub auth_code: String,
    /// Grows with every request of a client, as a clock would.
    pub at: i64,
    pub body: std::sync::Arc<str>,
}

/// The alternate key of terminal `n` (from 1).
pub fn term_no(n: u64) -> String {
    format!("{:08}", TERM_NO_BASE + n)
}

/// Terminal numbers start above this; digits only, so that pgbench, which knows numbers alone, can make them.
pub const TERM_NO_BASE: u64 = 10_000_000;
/// Lowest and highest card number.
pub const CARDS: (u64, u64) = (4_000_000_000_000_000, 4_999_999_999_999_999);
/// Lowest and highest authorization code.
pub const AUTH_CODES: (u64, u64) = (1_000_000, 9_999_999);

/// Terminal definition `n`, from 1 to [`TERMINALS`].
pub fn terminal(n: u64) -> Terminal {
    Terminal {
        id: n as i64,
        term_no: term_no(n),
        site: format!("S{:05}", n % SITES),
        approved_count: 0,
        last_at: 0,
        profile: Random::new(n).text(PROFILE_CHARS),
    }
}

/// The log's fixed part: what an application would fill with track data and responses.
pub fn log_body() -> std::sync::Arc<str> {
    Random::new(LOG_BYTES as u64).text(BODY_CHARS).into()
}

/// The requests of one client.
pub struct Requests {
    random: Random,
    at: i64,
    step: i64,
    body: std::sync::Arc<str>,
}

impl Requests {
    /// Client `client` of `clients`; `epoch` tells runs on the same data apart, so that log times keep growing.
    pub fn new(client: usize, clients: usize, epoch: u64) -> Requests {
        Requests {
            random: Random::new((epoch << 20) + client as u64 + 1),
            at: ((epoch as i64) << 40) + client as i64,
            step: clients as i64,
            body: log_body(),
        }
    }

    /// The next request.
    pub fn next_request(&mut self) -> Request {
        self.at += self.step;
        Request {
            card: self.random.between(CARDS.0, CARDS.1).to_string(),
            term_no: term_no(self.random.between(1, TERMINALS)),
            auth_code: self.random.between(AUTH_CODES.0, AUTH_CODES.1).to_string(),
            at: self.at,
            body: self.body.clone(),
        }
    }
}

/// xorshift64*: small, fast and good enough to spread keys.
pub struct Random(u64);

impl Random {
    /// A generator whose first numbers differ between neighbouring seeds.
    pub fn new(seed: u64) -> Random {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((mixed ^ (mixed >> 31)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Printable characters with no quote, backslash or tab among them.
    fn text(&mut self, chars: usize) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
        (0..chars).map(|_| char::from(ALPHABET[(self.next() >> 58) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the column values.
    fn terminal_bytes(t: &Terminal) -> usize {
        TERMINAL_INTEGERS * 8 + t.term_no.len() + t.site.len() + t.profile.len()
    }

    /// Bytes of the column values of the log record a request writes.
    fn log_bytes(r: &Request) -> usize {
        LOG_INTEGERS * 8 + r.card.len() + r.term_no.len() + r.auth_code.len() + r.body.len()
    }

    #[test]
    fn records_have_the_studys_lengths() {
        for n in [1, 2, 499, 500, TERMINALS] {
            assert_eq!(terminal_bytes(&terminal(n)), 4072);
        }
        let mut requests = Requests::new(3, 40, 7);
        for _ in 0..1000 {
            assert_eq!(log_bytes(&requests.next_request()), 998);
        }
    }

    #[test]
    fn requests_repeat_by_seed_and_differ_by_client_and_epoch() {
        let first = |client, epoch| Requests::new(client, 40, epoch).next_request();
        assert_eq!(first(1, 1), first(1, 1));
        assert_ne!(first(1, 1).card, first(2, 1).card);
        assert_ne!(first(1, 1).card, first(1, 2).card);
        assert!(first(39, 1).at < first(0, 2).at, "later runs write later times");
    }

    #[test]
    fn every_terminal_can_be_asked_for() {
        let mut random = Random::new(1);
        let seen: std::collections::HashSet<u64> = (0..200_000).map(|_| random.between(1, 100)).collect();
        assert_eq!(seen.len(), 100);
        assert!(seen.contains(&1) && seen.contains(&100));
    }
}
