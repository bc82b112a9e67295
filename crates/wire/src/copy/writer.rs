//! Writes rows as COPY data, one CopyData message for each row.

use super::CopyFormat;
use crate::backend;
use crate::encode::{self, Output};
use holdfast_types::{ColumnDesc, Row, ValueRef};

pub struct CopyWriter {
    format: CopyFormat,
    /// A field's text before it is escaped.
    field: Vec<u8>,
}

impl CopyWriter {
    pub fn new(format: CopyFormat) -> CopyWriter {
        CopyWriter { format, field: Vec::new() }
    }

    /// Writes CopyOutResponse and, if requested, the header line.
    pub fn begin(&mut self, out: &mut Vec<u8>, columns: &[ColumnDesc]) {
        backend::copy_response(out, b'H', columns.len());
        if self.format.header {
            let at = backend::open(out, b'd');
            for (i, column) in columns.iter().enumerate() {
                self.field.clear();
                self.field.extend_from_slice(column.name.as_bytes());
                self.put_field(out, i, columns.len() == 1);
            }
            out.push(b'\n');
            backend::close(out, at);
        }
    }

    pub fn row(&mut self, out: &mut Vec<u8>, row: &dyn Row, columns: &[ColumnDesc], output: Output) {
        let at = backend::open(out, b'd');
        for (i, column) in columns.iter().enumerate() {
            match row.get(i) {
                ValueRef::Null => {
                    self.put_delimiter(out, i);
                    out.extend_from_slice(self.format.null.as_bytes());
                }
                value => {
                    self.field.clear();
                    encode::text_value(&mut self.field, value, column, output);
                    self.put_field(out, i, columns.len() == 1);
                }
            }
        }
        out.push(b'\n');
        backend::close(out, at);
    }

    fn put_delimiter(&self, out: &mut Vec<u8>, i: usize) {
        if i > 0 {
            out.push(self.format.delimiter);
        }
    }

    fn put_field(&mut self, out: &mut Vec<u8>, i: usize, alone: bool) {
        self.put_delimiter(out, i);
        if self.format.csv { self.put_csv(out, alone) } else { self.put_text(out) }
    }

    fn put_text(&self, out: &mut Vec<u8>) {
        for &byte in &self.field {
            let letter = match byte {
                b'\\' => b'\\',
                b'\x08' => b'b',
                b'\x0c' => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                b'\x0b' => b'v',
                b if b == self.format.delimiter => b,
                b => {
                    out.push(b);
                    continue;
                }
            };
            out.extend_from_slice(&[b'\\', letter]);
        }
    }

    /// Writes a CSV field. It is quoted if a reader would otherwise misread it: the NULL string, a delimiter, a quote,
    /// an end of line, or `\.` alone on a line.
    fn put_csv(&self, out: &mut Vec<u8>, alone: bool) {
        let f = &self.format;
        let special = |b: &u8| *b == f.delimiter || *b == f.quote || matches!(*b, b'\n' | b'\r');
        let quoted =
            self.field == f.null.as_bytes() || self.field.iter().any(special) || (alone && self.field == b"\\.");
        if !quoted {
            out.extend_from_slice(&self.field);
            return;
        }
        out.push(f.quote);
        for &byte in &self.field {
            if byte == f.quote || byte == f.escape {
                out.push(f.escape);
            }
            out.push(byte);
        }
        out.push(f.quote);
    }
}
