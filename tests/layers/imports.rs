//! What the text of a module imports: by `use`, by a path in the code, or in a macro.

use syn::visit::{self, Visit};
use syn::{Attribute, ExprAsync, ItemExternCrate, ItemFn, ItemImpl, ItemMod, ItemUse, Macro, Meta, Signature, UseTree};

/// One import.
#[derive(Debug)]
pub(crate) enum Import {
    /// Of this crate, by its path from the root.
    Inside(Vec<String>),
    /// Of another crate.
    Outside(String),
    /// Not an import, but no less of a dependency: it wants somebody to poll it.
    Async,
}

/// The imports of the module at `path`. Tests and comments are not looked at.
///
/// # Panics
/// If the text is not Rust.
pub(crate) fn imports(path: &[String], source: &str) -> Vec<Import> {
    let mut reader = Reader {
        module: path.to_vec(),
        found: Vec::new(),
    };
    reader.visit_file(&syn::parse_file(source).unwrap_or_else(|error| panic!("{path:?}: {error}")));
    reader.found
}

struct Reader {
    /// Where the reader is: the file's module and those within.
    module: Vec<String>,
    found: Vec<Import>,
}

impl Reader {
    /// Notes a path that leaves the module.
    fn note(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else { return };
        let ups = segments
            .iter()
            .take_while(|segment| *segment == "super" || *segment == "self")
            .count();
        let base = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => {
                let supers = segments[..ups].iter().filter(|segment| *segment == "super").count();
                self.module[..self.module.len().saturating_sub(supers)].to_vec()
            }
            _ => {
                self.found.push(Import::Outside(segments.join("::")));
                return;
            }
        };
        let below = &segments[ups.max(1)..];
        self.found.push(Import::Inside([&base, below].concat()));
    }

    /// Notes each leaf of a `use`.
    fn note_tree(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: String| [prefix, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.note_tree(&path.tree, &with(path.ident.to_string())),
            UseTree::Name(name) if name.ident == "self" => self.note(prefix),
            UseTree::Rename(rename) if rename.ident == "self" => self.note(prefix),
            UseTree::Name(name) => self.note(&with(name.ident.to_string())),
            UseTree::Rename(rename) => self.note(&with(rename.ident.to_string())),
            UseTree::Glob(_) => self.note(prefix),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_tree(tree, prefix)),
        }
    }
}

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<Meta>()
                .is_ok_and(|meta| meta.path().is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !only_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !only_for_tests(&item.attrs) {
            self.note_tree(&item.tree, &[]);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast ItemExternCrate) {
        self.note(&[item.ident.to_string()]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A path of one segment is a name in scope: it came in by a `use`, or is of this module.
        if path.segments.len() > 1 {
            let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.found.extend(signature.asyncness.map(|_| Import::Async));
        visit::visit_signature(self, signature);
    }

    fn visit_expr_async(&mut self, block: &'ast ExprAsync) {
        self.found.push(Import::Async);
        visit::visit_expr_async(self, block);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        // The tokens of a macro need not be paths or expressions; what looks like a path in them is taken for one.
        let text = item.tokens.to_string().replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let segments = word.split("::").filter(|segment| !segment.is_empty());
            let segments: Vec<_> = segments.map(str::to_owned).collect();
            if segments.len() > 1 {
                self.note(&segments);
            }
        }
        visit::visit_macro(self, item);
    }
}
