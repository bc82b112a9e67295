//! `cargo xtask rules`: every rule and every guarantee names tests that exist, and files that exist.
//!
//! `docs/rules.md` has two tables: guarantees (number and text, crate that owns it, tests) and rules (number and text,
//! where it is kept, tests, what broke the test). A cell of tests has, in backticks:
//!
//! | form | means |
//! |---|---|
//! | `crate::module::name` | tests of that crate whose name begins with `name`, in a file or directory `module` |
//! | `crate::module::*` | every test there |
//! | `cargo xtask test --only NAME` | a suite |
//! | `a/path` | a file or directory of the repository |
//!
//! A cell that begins with `none:` says why there is none. In the second column of the rules `crate/path` is a file below
//! that crate's `src`, without `.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;

use crate::{paths, suites};

const RULES: usize = 34;
const GUARANTEES: usize = 7;

/// `cargo xtask rules`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask rules

Exit code 1 when docs/rules.md lacks a rule or a guarantee, or names a test or a file that does not exist.")]
pub struct Arguments {}

/// Prints what is wrong with docs/rules.md. True when nothing is.
pub fn command(_: &Arguments) -> anyhow::Result<bool> {
    let faults = check()?;
    faults.iter().for_each(|fault| println!("docs/rules.md: {fault}"));
    println!("rules: {}", if faults.is_empty() { "ok" } else { "FAILED" });
    Ok(faults.is_empty())
}

/// What is wrong with docs/rules.md of this workspace.
pub fn check() -> anyhow::Result<Vec<String>> {
    let root = paths::root();
    let text = std::fs::read_to_string(root.join("docs/rules.md")).context("docs/rules.md")?;
    Ok(faults(&text, &Sources::read(&root)?))
}

/// What a document may name.
#[derive(Default)]
struct Sources {
    /// The path of each test: crate, modules, name.
    tests: Vec<Vec<String>>,
    /// Every file and directory of the repository's sources, from its root.
    files: BTreeSet<String>,
}

impl Sources {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        for top in ["crates", "xtask", "fuzz", "tests", "docs"] {
            sources.read_directory(root, Path::new(top))?;
        }
        Ok(sources)
    }

    fn read_directory(&mut self, root: &Path, below: &Path) -> anyhow::Result<()> {
        self.files.insert(below.display().to_string());
        for entry in std::fs::read_dir(root.join(below)).with_context(|| below.display().to_string())? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.read_directory(root, &path)?;
            } else {
                if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(root.join(&path))?;
                    self.tests.extend(tests_of(&path, &text));
                }
                self.files.insert(path.display().to_string());
            }
        }
        Ok(())
    }

    fn has_test(&self, reference: &str) -> bool {
        let parts: Vec<&str> = reference.split("::").collect();
        let [krate, modules @ .., name] = parts.as_slice() else { return false };
        self.tests.iter().any(|test| {
            let (own_name, own_modules) = test.split_last().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
            let mut rest = own_modules.iter().skip(1);
            own_modules.first().is_some_and(|own| own == krate)
                && modules.iter().all(|module| rest.any(|own| own == module))
                && (*name == "*" || own_name.starts_with(name))
        })
    }

    /// `crate/path`, a file or a directory below the crate's `src`.
    fn has_source(&self, path: &str) -> bool {
        let Some((krate, rest)) = path.split_once('/') else { return false };
        let file = format!("crates/{krate}/src/{rest}");
        self.files.contains(&file) || self.files.contains(&format!("{file}.rs"))
    }
}

/// The tests of a file: functions behind an attribute that ends in `test`.
fn tests_of(path: &Path, text: &str) -> Vec<Vec<String>> {
    let path = path.with_extension("");
    let steps = path.components().map(|c| c.as_os_str().to_string_lossy().into_owned());
    let skipped = ["crates", "src", "tests", "it", "mod", "main", "lib"];
    let modules: Vec<String> = steps.filter(|step| !skipped.contains(&step.as_str())).collect();
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test && !line.starts_with("//")) {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push([modules.as_slice(), &[name[..end].to_owned()]].concat());
            is_test = false;
        }
    }
    found
}

fn faults(text: &str, sources: &Sources) -> Vec<String> {
    let mut faults = Vec::new();
    let tables = [("Guarantee", "guarantee", GUARANTEES), ("Rule", "rule", RULES)];
    for (heading, what, count) in tables {
        let rows = rows(text, heading);
        let numbers: Vec<usize> = rows.iter().filter_map(|cells| number(&cells[0])).collect();
        for missing in (1..=count).filter(|number| !numbers.contains(number)) {
            faults.push(format!("{what} {missing} has no row"));
        }
        if !numbers.is_sorted() {
            faults.push(format!("the {what}s are not in the order of their numbers"));
        }
        for cells in &rows {
            let title = format!("{what} {:?}", cells[0].chars().take(40).collect::<String>());
            let Some(tests) = cells.get(2) else {
                faults.push(format!("{title} has no column of tests"));
                continue;
            };
            faults.extend(wrong_tests(tests, sources).into_iter().map(|wrong| format!("{title}: {wrong}")));
            for path in quoted(&cells[1]).filter(|path| path.contains('/') && what == "rule") {
                if !sources.has_source(path) {
                    faults.push(format!("{title}: no source file {path}"));
                }
            }
        }
    }
    faults
}

fn wrong_tests(cell: &str, sources: &Sources) -> Vec<String> {
    if cell.starts_with("none:") {
        return Vec::new();
    }
    if quoted(cell).next().is_none() {
        return vec!["names no test".to_owned()];
    }
    let is_there = |reference: &&str| match reference.strip_prefix("cargo xtask test --only ") {
        Some(suite) => suites::names().any(|name| name == suite),
        None if reference.contains("::") => sources.has_test(reference),
        None => sources.files.contains(*reference),
    };
    quoted(cell).filter(|reference| !is_there(reference)).map(|wrong| format!("no test {wrong}")).collect()
}

/// The rows of the table whose first heading is this, as cells.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" |").map(|cell| cell.trim().to_owned()).collect();
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("| {heading} |")));
    lines.by_ref().take(2).for_each(drop);
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn number(cell: &str) -> Option<usize> {
    cell.split(' ').next()?.parse().ok()
}

/// What is in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let text =
            "#[test]\nfn nothing_is_lost() {}\n#[tokio::test(start_paused = true)]\n#[ignore]\nasync fn late() {}";
        let tests = tests_of(Path::new("crates/trail/src/simulation/rules.rs"), text);
        let files = ["crates/trail/src/writer.rs", "tests/shell"].map(str::to_owned).into();
        Sources { tests, files }
    }

    /// A document with all rows, and these tests for rule 1, kept in that file.
    fn document(tests: &str, kept_in: &str) -> String {
        let row = |n: usize| format!("| {n} x | `trail/writer` | none: not built | |\n");
        let rules: String = (2..=RULES).map(row).collect();
        let guarantees: String = (1..=GUARANTEES).map(row).collect();
        format!(
            "| Guarantee | Crate | Tests |\n|---|---|---|\n{guarantees}\ntext\n\n\
             | Rule | Kept in | Tests | Broken by |\n|---|---|---|---|\n| 1 a | `{kept_in}` | {tests} | |\n{rules}"
        )
    }

    #[test]
    fn tests_are_found_by_prefix_and_module() {
        let good = "`trail::rules::nothing_is`, `trail::simulation::*`, `trail::late`, `tests/shell`, \
                    `cargo xtask test --only kill`";
        assert_eq!(faults(&document(good, "trail/writer"), &sources()), [""; 0]);
    }

    #[test]
    fn what_does_not_exist_is_named() {
        for wrong in ["trail::rules::something", "store::rules::nothing", "trail::table::*", "tests/none", "late"] {
            let found = faults(&document(&format!("`{wrong}`"), "trail/writer"), &sources());
            assert_eq!(found, [format!("rule \"1 a\": no test {wrong}")]);
        }
        let suite = faults(&document("`cargo xtask test --only nothing`", "trail/writer"), &sources());
        assert_eq!(suite.len(), 1);
        assert_eq!(faults(&document("later", "trail/writer"), &sources()), ["rule \"1 a\": names no test"]);
        assert_eq!(
            faults(&document("`trail::late`", "trail/gone"), &sources()),
            ["rule \"1 a\": no source file trail/gone"]
        );
    }

    #[test]
    fn a_missing_rule_and_a_wrong_order_are_found() {
        let text = document("`trail::late`", "trail/writer");
        let missing = text.replace("| 34 x |", "| later x |");
        assert_eq!(faults(&missing, &sources()), ["rule 34 has no row"]);
        let swapped = text.replace("| 33 x |", "| 30 x |").replacen("| 30 x |", "| 33 x |", 1);
        assert_eq!(faults(&swapped, &sources()), ["the rules are not in the order of their numbers"]);
    }
}
