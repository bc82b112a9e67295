//! What the items of one module define, import and name.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::modules::{Import, Mention};

/// What was found in a module, child modules left out.
#[derive(Default)]
pub struct Found {
    pub items: Vec<String>,
    pub imports: Vec<Import>,
    pub globs: Vec<Vec<String>>,
    pub mentions: Vec<Mention>,
    pub macros: Vec<String>,
}

/// Collects from the items of a module.
pub fn collect(items: &[syn::Item]) -> Found {
    let mut found = Found::default();
    for item in items {
        if !matches!(item, syn::Item::Mod(_)) {
            found.items.extend(name_of(item));
            found.visit_item(item);
        }
    }
    found
}

/// True under `#[cfg(test)]` and `#[test]`.
pub fn only_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test")))
    })
}

fn name_of(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::TraitAlias(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Found {
    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.mentions.push(Mention { path, line });
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.import(&step.tree, &path);
            }
            syn::UseTree::Name(leaf) => {
                let line = leaf.ident.span().start().line;
                if leaf.ident != "self" {
                    path.push(leaf.ident.to_string());
                }
                self.bind(path.last().cloned().unwrap_or_default(), path, line);
            }
            syn::UseTree::Rename(leaf) => {
                let line = leaf.ident.span().start().line;
                if leaf.ident != "self" {
                    path.push(leaf.ident.to_string());
                }
                self.bind(leaf.rename.to_string(), path, line);
            }
            syn::UseTree::Glob(_) => self.globs.push(path),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
        }
    }

    fn bind(&mut self, name: String, path: Vec<String>, line: usize) {
        self.mention(path.clone(), line);
        self.imports.push(Import { name, path });
    }

    /// Paths among the tokens of a macro: names joined by `::`, and single names that begin with a capital.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_of_path(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace && colons == 2 {
                        path.clear(); // a `use` group inside a macro
                    }
                    self.end_of_path(&mut path, line);
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.end_of_path(&mut path, line);
                    colons = 0;
                }
            }
        }
        self.end_of_path(&mut path, line);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 || path.first().is_some_and(|name| name.starts_with(char::is_uppercase)) {
            self.mention(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if only_for_tests(attributes_of(item)) {
            return;
        }
        match item {
            syn::Item::Use(item) if item.leading_colon.is_none() => self.import(&item.tree, &[]),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.macros.extend(item.ident.iter().map(ToString::to_string));
        visit::visit_item_macro(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[syn::Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !only_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !only_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let line = first.ident.span().start().line;
            self.mention(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        match call.path.get_ident() {
            // Found by its text, not by its path: see `Modules::macros`.
            Some(name) => self.mention(vec![format!("{name}!")], name.span().start().line),
            None => self.visit_path(&call.path),
        }
    }
}
