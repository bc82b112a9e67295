//! What a call of a SQL function costs at most.

/// Time and result of one call, compared with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// At most as much as reading a number.
    Constant,
    /// At most proportional to the length of its arguments.
    Linear,
    /// More than that, or not known.
    Unbounded,
}
