//! COPY data, text and CSV, as the PostgreSQL manual describes them under COPY, "File Formats".

mod reader;
mod writer;

pub use reader::CopyReader;
pub use writer::CopyWriter;

/// The format of COPY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    pub csv: bool,
    /// The first line names the columns.
    pub header: bool,
    pub delimiter: u8,
    /// The text that means NULL.
    pub null: String,
    /// CSV only.
    pub quote: u8,
    /// CSV only: comes before a quote inside a quoted value.
    pub escape: u8,
}

impl CopyFormat {
    pub fn text() -> CopyFormat {
        CopyFormat { csv: false, header: false, delimiter: b'\t', null: "\\N".into(), quote: b'"', escape: b'"' }
    }

    pub fn csv() -> CopyFormat {
        CopyFormat { csv: true, header: false, delimiter: b',', null: String::new(), quote: b'"', escape: b'"' }
    }
}
