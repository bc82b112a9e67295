//! The key by which jsonb values are compared and sorted.

use super::function::{Function, text};
use crate::types::jsonb;
use holdfast_types::Value;

pub(super) const FUNCTIONS: &[Function] =
    &[Function::strict("hf_jsonb_key", 1, |a| Ok(Value::Blob(jsonb::sort_key(&text(a, 0)?)?)))];
