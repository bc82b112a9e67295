//! Parameters that are set, undone and refused.

use super::*;

#[test]
fn set_show_and_undo() {
    let mut s = Settings::new(&[("statement_timeout", "30s".into())]);
    assert_eq!(s.timeouts().statement, Duration::from_secs(30));
    let a = s.set("Statement_Timeout", Some("100"), false).unwrap();
    let b = s.set("statement_timeout", Some("2min"), true).unwrap();
    assert_eq!(s.timeouts().statement, Duration::from_secs(120));
    s.end_transaction(vec![a.clone(), b.clone()], true);
    assert_eq!(s.timeouts().statement, Duration::from_millis(100));
    s.end_transaction(vec![a], false);
    assert_eq!(s.get("statement_timeout").unwrap().1, "30s");
}

#[test]
fn a_set_after_a_set_local_stays() {
    let mut s = Settings::default();
    let undo = [("1", true), ("2", false), ("3", true), ("4", true)];
    let undo = undo.map(|(value, local)| s.set("lock_timeout", Some(value), local).unwrap());
    s.end_transaction(undo.to_vec(), true);
    assert_eq!(s.get("lock_timeout").unwrap().1, "2ms");
    let reset = s.reset_all();
    assert_eq!(s.get("lock_timeout").unwrap().1, "0");
    s.end_transaction(reset, false);
    assert_eq!(s.get("lock_timeout").unwrap().1, "2ms", "RESET ALL is undone");
}

#[test]
fn what_is_unknown_or_not_done_is_refused() {
    let mut s = Settings::default();
    assert_eq!(s.set("no_such", Some("1"), false).unwrap_err().state().0, "42704");
    for (name, value) in [("holdfast.level", "lukewarm"), ("TimeZone", "Europe/Berlin"), ("lock_timeout", "soon")] {
        assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
    }
    assert_eq!(s.set("server_version", Some("16"), false).unwrap_err().state().0, "55P02");
    assert_eq!(s.set("holdfast.nosuch", Some("1"), false).unwrap_err().state().0, "42704");
    assert!(s.set("My.App", Some("x"), false).is_ok());
    assert_eq!(s.get("my.app").unwrap().1, "x");
    assert!(s.set("synchronous_commit", Some("off"), false).is_ok());
    // A start-up value that cannot be honoured is refused as well.
    assert_eq!(s.start("TimeZone", "Europe/Berlin").unwrap_err().state().0, "22023");
    assert!(s.start("TimeZone", "gmt").is_ok());
    assert_eq!(s.get("TimeZone").unwrap().1, "GMT");
    assert!(s.start("client_encoding", "'utf-8'").is_ok());
    assert_eq!(s.get("client_encoding").unwrap().1, "UTF8");
}

#[test]
fn values_are_read_and_shown_as_by_postgresql() {
    let mut s = Settings::default();
    for (name, value, shown) in [
        ("statement_timeout", "1000", "1s"),
        ("statement_timeout", "1.5s", "1500ms"),
        ("work_mem", "65536", "64MB"),
        ("enable_seqscan", "of", "off"),
        ("random_page_cost", "1.50", "1.5"),
        ("synchronous_commit", "no", "off"),
        ("plan_cache_mode", "FORCE_GENERIC_PLAN", "force_generic_plan"),
        ("effective_cache_size", "1GB", "1GB"),
        ("client_encoding", "SQL_ASCII", "SQL_ASCII"),
    ] {
        s.set(name, Some(value), false).unwrap();
        assert_eq!(s.get(name).unwrap().1, shown, "{name} = {value}");
    }
    for (name, value, state, message) in [
        (
            "statement_timeout",
            "-5",
            "22023",
            "-5 ms is outside the valid range for parameter \"statement_timeout\" (0 .. 2147483647)",
        ),
        ("enable_seqscan", "o", "22023", "parameter \"enable_seqscan\" requires a Boolean value"),
        (
            "shared_buffers",
            "1GB",
            "55P02",
            "parameter \"shared_buffers\" cannot be changed without restarting the server",
        ),
        ("log_checkpoints", "on", "55P02", "parameter \"log_checkpoints\" cannot be changed now"),
        (
            "ignore_system_indexes",
            "on",
            "55P02",
            "parameter \"ignore_system_indexes\" cannot be set after connection start",
        ),
        ("array_nulls", "off", "22023", "invalid value for parameter \"array_nulls\": \"off\""),
        (
            "extra_float_digits",
            "0",
            "22023",
            "0 is outside the valid range for parameter \"extra_float_digits\" (1 .. 3)",
        ),
    ] {
        let error = s.set(name, Some(value), false).unwrap_err();
        assert_eq!((error.state().0, error.message()), (state, message));
    }
}

#[test]
fn every_default_is_a_value_that_its_parameter_shows() {
    let mut names = std::collections::HashSet::new();
    for parameter in parameters::all() {
        assert!(names.insert(parameter.name.to_lowercase()), "{} twice", parameter.name);
        if parameter.context == parameters::Context::User {
            let mut s = Settings::default();
            s.set(parameter.name, Some(parameter.default), false).unwrap();
            assert_eq!(s.get(parameter.name).unwrap().1, parameter.default, "{}", parameter.name);
        }
    }
    assert!(names.len() > 350);
}

#[test]
fn automatic_transactions() {
    let mut s = Settings::new(&[("auto_transaction_rows_max", "7".into())]);
    let defaults = s.automatic();
    assert_eq!((defaults.on, defaults.rows_max), (false, 7));
    assert_eq!((defaults.time_max, defaults.idle), (Duration::from_millis(100), Duration::from_millis(10)));
    s.start("auto_transaction", "true").unwrap();
    s.set("auto_transaction_idle_ms", Some("0"), false).unwrap();
    assert_eq!((s.automatic().on, s.automatic().idle), (true, Duration::ZERO));
    for (name, value) in [("auto_transaction_rows_max", "0"), ("auto_transaction_time_max_ms", "0")] {
        assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
    }
}

#[test]
fn a_session_cannot_lift_what_its_database_requires() {
    let mut s = Settings::default();
    assert_eq!(s.set("require_transaction", Some("off"), false).unwrap_err().state().0, "55P02");
    assert_eq!(s.start("require_transaction", "off").unwrap_err().state().0, "55P02");
    assert_eq!(check_stored("require_transaction", "on", false).unwrap_err().state().0, "55P02");
    assert_eq!(check_stored("Lock_Timeout", "1s", false).unwrap(), ("lock_timeout", "1s".to_owned()));
    assert_eq!(check_stored("server_version", "16", true).unwrap_err().state().0, "55P02");
}

#[test]
fn the_stronger_of_two_parameters_is_the_level() {
    let mut s = Settings::default();
    assert_eq!(s.level(), Level::Local, "no standby is named");
    s.set("holdfast.level", Some("warm"), false).unwrap();
    assert_eq!(s.level(), Level::Warm);
    s.set("holdfast.level", Some("cold"), false).unwrap();
    assert_eq!((s.level(), s.get("holdfast.level").unwrap().1), (Level::Local, "local"), "its former name");
    let mut s = Settings::new(&[("synchronous_standby_names", "a".into())]);
    for (value, level) in [
        ("on", Level::Hot),
        ("remote_write", Level::Hot),
        ("remote_apply", Level::Commit),
        ("local", Level::Local),
        ("off", Level::Local),
    ] {
        s.set("synchronous_commit", Some(value), false).unwrap();
        assert_eq!(s.level(), level, "{value}");
    }
    s.set("HOLDFAST.LEVEL", Some("hot"), false).unwrap();
    assert_eq!(s.level(), Level::Hot);
}

#[test]
fn limits_of_results() {
    let mut s = Settings::default();
    assert_eq!(s.result_limits(), ResultLimits::default());
    s.set("result_rows_max", Some("7"), false).unwrap();
    s.set("result_bytes_max", Some("64kB"), false).unwrap();
    assert_eq!(s.result_limits(), ResultLimits::new(7, 64 << 10));
    for (name, value) in [("result_rows_max", "-1"), ("result_rows_max", "many"), ("result_bytes_max", "64 kg")] {
        assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
    }
    assert_eq!(s.result_limits(), ResultLimits::new(7, 64 << 10));
}
