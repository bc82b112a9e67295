//! The tables that a statement or a query names.
//!
//! `sqlparser`'s visitors are generic: each closure given to its `visit_relations` compiles a walk over the whole syntax
//! tree of its own, tens of seconds of a release build. Here is one walk for all callers.

use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, Visit, Visitor};

struct Walk<'a>(&'a mut dyn FnMut(&ObjectName) -> ControlFlow<()>);

impl Visitor for Walk<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        (self.0)(relation)
    }
}

/// Calls `each` for every table named in the tree, until it breaks.
pub fn visit_relations(tree: &impl Visit, mut each: impl FnMut(&ObjectName) -> ControlFlow<()>) -> ControlFlow<()> {
    tree.visit(&mut Walk(&mut each))
}
