//! Brings schemas as they are found in the wild into the one form that is compiled and walked.
//!
//! The result is JSON Schema 2020-12 without identifiers, anchors or references to other documents:
//!
//! - draft-4 boolean `exclusiveMinimum` and `exclusiveMaximum` become numbers, and the array form of `items` becomes
//!   `prefixItems`;
//! - `$schema`, `$id` and `$vocabulary` go, so that no unknown dialect or odd URI can be stumbled upon;
//! - `$ref`, `$dynamicRef` and `$recursiveRef` become a `$ref` to a JSON pointer, or [`UNRESOLVED`] if they lead
//!   nowhere. Without other documents the dynamic ones mean the same as the static one;
//! - what the meta-schema refuses is dropped, keyword by keyword. An unknown `type` is one such case.

use std::collections::{HashMap, HashSet};

use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

use super::pointer;

/// The keyword in the place of a reference that leads nowhere. It accepts nothing; its value is the reference.
pub(super) const UNRESOLVED: &str = "turnstate:unresolved-ref";

/// How often malformed keywords are looked for. One pass finds all but those that another one hid.
const MAX_REPAIRS: usize = 8;

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The normal form of `schema`.
pub(super) fn normalise(schema: &Value) -> Value {
    let id = ["$id", "id"].iter().find_map(|key| schema.get(key)?.as_str());
    let mut normaliser = Normaliser {
        id: id.map(|id| id.trim_end_matches('#').to_owned()),
        root: schema.clone(),
        seen: HashSet::new(),
        open: vec![String::new()],
        references: Vec::new(),
        anchors: HashMap::new(),
    };
    normaliser.run();
    let mut schema = normaliser.root;
    drop_malformed(&mut schema);
    schema
}

struct Normaliser {
    root: Value,
    /// The identifier by which the document may refer to itself.
    id: Option<String>,
    /// Subschemas found, by JSON pointer, and those of them still to be visited.
    seen: HashSet<String>,
    open: Vec<String>,
    /// Subschemas with a reference still to be resolved.
    references: Vec<String>,
    /// The subschemas' names.
    anchors: HashMap<String, String>,
}

impl Normaliser {
    fn run(&mut self) {
        loop {
            // A reference may lead to what no keyword leads to, such as `#/components/schemas/Pet`; so the subschemas
            // are all visited first, for their anchors, and whatever a reference leads to is visited in turn.
            while let Some(place) = self.open.pop() {
                if self.seen.insert(place.clone()) {
                    self.visit(&place);
                }
            }
            match self.references.pop() {
                Some(place) => self.resolve(&place),
                None => return,
            }
        }
    }

    fn visit(&mut self, place: &str) {
        let Some(schema) = self.root.pointer_mut(place) else {
            return;
        };
        let Value::Object(schema) = schema else {
            if !schema.is_boolean() {
                *schema = Value::Bool(true);
            }
            return;
        };
        for name in anchors(schema) {
            self.anchors.entry(name).or_insert_with(|| place.to_owned());
        }
        for keyword in ["$schema", "$id", "$vocabulary", "$anchor", "$dynamicAnchor"] {
            schema.shift_remove(keyword);
        }
        number_bound(schema, "minimum", "exclusiveMinimum");
        number_bound(schema, "maximum", "exclusiveMaximum");
        split_items(schema);
        if REFERENCES.iter().any(|keyword| schema.contains_key(*keyword)) {
            self.references.push(place.to_owned());
        }
        for (keyword, value) in &*schema {
            push_subschemas(place, keyword, value, &mut self.open);
        }
    }

    fn resolve(&mut self, place: &str) {
        let found = self.root.pointer(place).and_then(|schema| {
            let reference = REFERENCES.iter().find_map(|keyword| schema.get(keyword)?.as_str());
            reference.map(|reference| (reference.to_owned(), self.target(reference)))
        });
        let Some(schema) = self.root.pointer_mut(place).and_then(Value::as_object_mut) else {
            return;
        };
        for keyword in REFERENCES {
            schema.shift_remove(keyword);
        }
        match found {
            Some((_, Some(target))) => {
                schema.insert("$ref".to_owned(), Value::from(pointer::to_fragment(&target)));
                self.open.push(target);
            }
            Some((reference, None)) => {
                schema.insert(UNRESOLVED.to_owned(), Value::from(reference));
            }
            None => {}
        }
    }

    /// The pointer to what `reference` means, if that is a subschema of this document.
    fn target(&self, reference: &str) -> Option<String> {
        let own = self.id.as_deref().and_then(|id| reference.strip_prefix(id));
        let fragment = match own.unwrap_or(reference) {
            "" => "",
            local => local.strip_prefix('#')?,
        };
        let fragment = pointer::percent_decode(fragment);
        if !(fragment.is_empty() || fragment.starts_with('/')) {
            return self.anchors.get(&*fragment).cloned();
        }
        let tokens: Vec<_> = pointer::tokens(&fragment).collect();
        let mut target = String::new();
        let mut schema = &self.root;
        for (index, token) in tokens.iter().enumerate() {
            // `items` may have been renamed by `split_items`.
            let token = match &**token {
                "additionalItems" if schema.get(&**token).is_none() => "items",
                "items" if schema.get("prefixItems").is_some() => {
                    let next = tokens.get(index + 1);
                    let is_index = next.is_some_and(|next| next.parse::<usize>().is_ok());
                    if is_index { "prefixItems" } else { "items" }
                }
                token => token,
            };
            pointer::push(&mut target, token);
            schema = self.root.pointer(&target)?;
        }
        (schema.is_object() || schema.is_boolean()).then_some(target)
    }
}

/// The names by which other parts of the document may refer to `schema`.
fn anchors(schema: &Map<String, Value>) -> Vec<String> {
    let keyword = |keyword| schema.get(keyword).and_then(Value::as_str);
    let anchors = ["$anchor", "$dynamicAnchor"].map(keyword);
    // How it was written before there were anchors.
    let identifiers = ["$id", "id"].map(|name| keyword(name)?.strip_prefix('#'));
    let names = anchors.into_iter().chain(identifiers).flatten();
    names.map(str::to_owned).collect()
}

/// Draft 4: `exclusiveMinimum: true` says how `minimum` is meant.
fn number_bound(schema: &mut Map<String, Value>, bound: &str, exclusive: &str) {
    let Some(&Value::Bool(is_exclusive)) = schema.get(exclusive) else {
        return;
    };
    schema.shift_remove(exclusive);
    if is_exclusive && let Some(limit) = schema.shift_remove(bound) {
        schema.insert(exclusive.to_owned(), limit);
    }
}

/// Up to 2019-09: an array of `items` is for the first ones, `additionalItems` for the rest.
fn split_items(schema: &mut Map<String, Value>) {
    if !schema.get("items").is_some_and(Value::is_array) {
        return;
    }
    if let Some(items) = schema.shift_remove("items") {
        schema.insert("prefixItems".to_owned(), items);
    }
    if let Some(rest) = schema.shift_remove("additionalItems") {
        schema.insert("items".to_owned(), rest);
    }
}

/// Adds the pointers of the subschemas that `keyword` holds at `place`.
fn push_subschemas(place: &str, keyword: &str, value: &Value, open: &mut Vec<String>) {
    match (keyword, value) {
        (
            "additionalProperties"
            | "contains"
            | "contentSchema"
            | "else"
            | "if"
            | "items"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties",
            _,
        ) => open.push(pointer::join(place, &[keyword])),
        ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
            let indices = 0..schemas.len();
            open.extend(indices.map(|index| pointer::join(place, &[keyword, &index.to_string()])));
        }
        ("$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "properties", Value::Object(schemas)) => {
            let names = schemas.keys();
            open.extend(names.map(|name| pointer::join(place, &[keyword, name])));
        }
        ("dependencies", Value::Object(schemas)) => {
            // Here an array lists required properties.
            let schemas = schemas.iter().filter(|(_, schema)| !schema.is_array());
            open.extend(schemas.map(|(name, _)| pointer::join(place, &[keyword, name])));
        }
        _ => {}
    }
}

/// Removes what the meta-schema refuses: a constraint nobody can read is no constraint.
fn drop_malformed(schema: &mut Value) {
    let meta = jsonschema::draft202012::meta::validator();
    for _ in 0..MAX_REPAIRS {
        let malformed: Vec<_> = meta
            .iter_errors(schema)
            .filter(|error| {
                // A regular expression that is none is not passed over in silence: compiling refuses it.
                let kind = error.kind();
                !matches!(
                    kind,
                    ValidationErrorKind::Format { .. } | ValidationErrorKind::PropertyNames { .. }
                )
            })
            .map(|error| {
                let repeats = matches!(error.kind(), ValidationErrorKind::UniqueItems);
                (error.instance_path().as_str().to_owned(), repeats)
            })
            .collect();
        if malformed.is_empty() {
            return;
        }
        // Backwards, so that removing an item does not shift those still to be removed.
        for (place, repeats) in malformed.iter().rev() {
            if *repeats {
                remove_repeats(schema, place);
            } else {
                remove(schema, place);
            }
        }
    }
}

fn remove(schema: &mut Value, place: &str) {
    let Some((parent, _)) = place.rsplit_once('/') else {
        return;
    };
    let Some(token) = pointer::tokens(place).last() else {
        return;
    };
    match schema.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.shift_remove(&*token);
        }
        Some(Value::Array(items)) => {
            if let Some(index) = token.parse().ok().filter(|&index| items.get(index).is_some()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

fn remove_repeats(schema: &mut Value, place: &str) {
    if let Some(Value::Array(items)) = schema.pointer_mut(place) {
        let mut seen = Vec::new();
        items.retain(|item| {
            let first = !seen.contains(item);
            seen.push(item.clone());
            first
        });
    }
}
