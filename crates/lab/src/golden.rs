//! Compares output with the files in `golden/`. `HOLDFAST_UPDATE_GOLDEN=1` writes them again; look at the difference
//! before committing it.

/// Panics where `actual` is not what `golden/<name>` holds.
pub fn check(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("HOLDFAST_UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = expected.lines().zip(actual.lines()).position(|(e, a)| e != a);
    let line = differs.unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
    assert!(
        expected == actual,
        "{name} differs from line {}:\n  golden: {:?}\n  now:    {:?}",
        line + 1,
        expected.lines().nth(line),
        actual.lines().nth(line)
    );
}
