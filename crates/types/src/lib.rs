//! The words every crate shares: ids, levels, values, errors, statement descriptions, schema, the result sink.
//!
//! No I/O and no dependency on another Holdfast crate. What is here is either written into a format (ids, the
//! record module) or crosses a boundary between crates (values, errors, descriptions, sinks).

pub mod desc;
pub mod error;
pub mod ids;
pub mod level;
pub mod record;
pub mod schema;
pub mod sink;
pub mod value;

pub use desc::{ColumnDesc, StatementDesc};
pub use error::{SqlError, SqlResult, SqlState};
pub use ids::{Epoch, Hlc, Lsn, SiteId, TableId, TxnId, VolumeId};
pub use level::{Level, NoSuchLevel};
pub use sink::{Row, Sink, Tag};
pub use value::{Value, ValueRef};
