//! Checks that SQLite was built with the options that the store needs. The flags come from `.cargo/config.toml`, which
//! does not reach a program that embeds the library. Such a program must set them itself; the error names the flag.

use rusqlite::ffi;
use std::ffi::CStr;

/// SQLite lacks a compile option.
#[derive(Debug, thiserror::Error)]
#[error(
    "SQLite was built without {0}; put LIBSQLITE3_FLAGS = \"-DSQLITE_{0} -USQLITE_ENABLE_MEMORY_MANAGEMENT\" under [env] in the program's .cargo/config.toml and build again"
)]
pub struct FlagMissing(pub &'static str);

/// Refuses a SQLite library that cannot report row changes.
pub fn check_flags() -> Result<(), FlagMissing> {
    const NEEDED: [(&CStr, &str); 1] = [(c"ENABLE_PREUPDATE_HOOK", "ENABLE_PREUPDATE_HOOK")];
    for (option, name) in NEEDED {
        // SAFETY: the argument is a NUL-terminated string; the call only compares it with a static list.
        if unsafe { ffi::sqlite3_compileoption_used(option.as_ptr()) } == 0 {
            return Err(FlagMissing(name));
        }
    }
    Ok(())
}

/// The version of the SQLite library, such as 3054001 for 3.54.1.
pub fn sqlite_version() -> u32 {
    // SAFETY: the call has no arguments and returns a constant.
    unsafe { ffi::sqlite3_libversion_number() }.unsigned_abs()
}

#[cfg(test)]
mod tests {
    #[test]
    fn built_with_the_options_the_store_needs() {
        super::check_flags().unwrap();
    }
}
