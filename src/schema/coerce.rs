//! The walk that makes a value fit its schema: scalars of the wrong type, and optional `null`s.

use serde_json::{Map, Value};

use super::{parts::Parts, pointer, scalar};

/// How deep the walk recurses. References and unions descend the schema without descending the value, so this is more
/// than the depth of a value; it is what ends a cycle of references.
const MAX_DEPTH: usize = 4 * super::MAX_DEPTH;
/// Work allowed for any value, however small. Nested unions could otherwise take time exponential in their depth.
const BASE_FUEL: usize = 20_000;
/// Work allowed for each node of the value besides.
const FUEL_PER_NODE: usize = 64;

/// Coerces `value` where it does not fit. Of a value that is valid, only integral floats are rewritten.
pub(super) fn coerce(parts: &Parts, value: &mut Value) {
    let mut coercion = Coercion {
        parts,
        fuel: BASE_FUEL + FUEL_PER_NODE * size(value),
        depth: 0,
    };
    let whole = Place {
        pointer: String::new(),
        schema: parts.schema(),
    };
    coercion.value(&whole, value);
}

/// A part of the schema, and where it is.
struct Place<'a> {
    pointer: String,
    schema: &'a Value,
}

impl<'a> Place<'a> {
    /// The subschema under `keyword`, if it is an object. A boolean has nothing to coerce to.
    fn child(&self, keyword: &str) -> Option<Self> {
        let schema = self.schema.get(keyword)?;
        schema.is_object().then(|| Self {
            pointer: pointer::join(&self.pointer, &[keyword]),
            schema,
        })
    }

    /// The subschema under `keyword` for `name`.
    fn member(&self, keyword: &str, name: &str) -> Option<Self> {
        let schema = self.schema.get(keyword)?.get(name)?;
        schema.is_object().then(|| Self {
            pointer: pointer::join(&self.pointer, &[keyword, name]),
            schema,
        })
    }

    /// The subschemas listed under `keyword`, booleans too: in a union a `true` accepts.
    fn list(&self, keyword: &str) -> Vec<Self> {
        let schemas = self.schema.get(keyword).and_then(Value::as_array);
        schemas
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, schema)| Self {
                pointer: pointer::join(&self.pointer, &[keyword, &index.to_string()]),
                schema,
            })
            .collect()
    }

    /// What `$ref` leads to.
    fn target(&self, parts: &'a Parts) -> Option<Self> {
        let reference = self.schema.get("$ref")?.as_str()?;
        let pointer = pointer::percent_decode(reference.strip_prefix('#')?).into_owned();
        let schema = parts.schema().pointer(&pointer)?;
        Some(Self { pointer, schema })
    }

    fn types(&self) -> Vec<&'a str> {
        match self.schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn requires(&self, name: &str) -> bool {
        let required = self.schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|required| required == name))
    }
}

struct Coercion<'a> {
    parts: &'a Parts,
    fuel: usize,
    depth: usize,
}

impl<'a> Coercion<'a> {
    fn value(&mut self, place: &Place<'a>, value: &mut Value) {
        if self.depth == MAX_DEPTH || !self.spend(1) {
            return;
        }
        self.depth += 1;
        self.applicators(place, value);
        self.scalar(place, value);
        match value {
            Value::Object(members) => self.members(place, members),
            Value::Array(items) => self.items(place, items),
            _ => {}
        }
        self.depth -= 1;
    }

    /// The subschemas that apply to the value itself.
    fn applicators(&mut self, place: &Place<'a>, value: &mut Value) {
        if let Some(target) = place.target(self.parts) {
            self.value(&target, value);
        }
        for part in place.list("allOf") {
            self.value(&part, value);
        }
        for keyword in ["anyOf", "oneOf"] {
            self.union(&place.list(keyword), value);
        }
    }

    /// Keeps what a branch accepts; else takes the first branch that accepts after coercion.
    fn union(&mut self, branches: &[Place<'a>], value: &mut Value) {
        for branch in branches {
            if self.accepts(branch, value) == Some(true) {
                return self.value(branch, value);
            }
        }
        for branch in branches {
            if !self.spend(size(value)) {
                return;
            }
            let mut candidate = value.clone();
            self.value(branch, &mut candidate);
            if self.accepts(branch, &candidate) == Some(true) {
                *value = candidate;
                return;
            }
        }
    }

    fn scalar(&mut self, place: &Place<'a>, value: &mut Value) {
        let types = place.types();
        if types.iter().any(|wanted| scalar::is_already(value, wanted)) {
            if let Value::Number(number) = value
                && !types.contains(&"number")
                && let Some(integer) = scalar::integral_float(number)
            {
                *number = integer;
            }
            return;
        }
        let mut candidates = types.iter().filter_map(|wanted| scalar::convert(value, wanted));
        // With one type the coerced value is right even if another keyword refuses it: that is then what is reported.
        let coerced = match *types {
            [_] => candidates.next(),
            _ => candidates.find(|candidate| self.accepts(place, candidate) == Some(true)),
        };
        if let Some(coerced) = coerced {
            *value = coerced;
        }
    }

    fn members(&mut self, place: &Place<'a>, members: &mut Map<String, Value>) {
        let names: Vec<String> = members.keys().cloned().collect();
        for name in names {
            for property in self.properties(place, &name) {
                let Some(member) = members.get_mut(&name) else {
                    break;
                };
                if member.is_null() && !place.requires(&name) && self.accepts(&property, member) == Some(false) {
                    members.shift_remove(&name);
                    break;
                }
                self.value(&property, member);
            }
        }
    }

    /// The subschemas for the property `name`.
    fn properties(&self, place: &Place<'a>, name: &str) -> Vec<Place<'a>> {
        let patterns = place.schema.get("patternProperties").and_then(Value::as_object);
        let matching = patterns
            .into_iter()
            .flat_map(Map::keys)
            .filter(|pattern| self.parts.key_matches(pattern, name));
        let mut declared = place
            .schema
            .get("properties")
            .is_some_and(|properties| properties.get(name).is_some());
        let mut found: Vec<_> = place.member("properties", name).into_iter().collect();
        for pattern in matching {
            declared = true;
            found.extend(place.member("patternProperties", pattern));
        }
        if !declared {
            found.extend(place.child("additionalProperties"));
        }
        found
    }

    fn items(&mut self, place: &Place<'a>, items: &mut [Value]) {
        let prefix = place.list("prefixItems");
        let rest = place.child("items");
        for (index, item) in items.iter_mut().enumerate() {
            if let Some(schema) = prefix.get(index).or(rest.as_ref()) {
                self.value(schema, item);
            }
        }
    }

    /// Whether `place` accepts `value`; `None` if that cannot be told, or not for what fuel is left.
    fn accepts(&mut self, place: &Place<'a>, value: &Value) -> Option<bool> {
        if !self.spend(size(value)) {
            return None;
        }
        self.parts.accepts(&place.pointer, value)
    }

    fn spend(&mut self, work: usize) -> bool {
        let left = self.fuel.checked_sub(work);
        self.fuel = left.unwrap_or(0);
        left.is_some()
    }
}

/// The number of nodes in `value`.
fn size(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.values().map(size).sum(),
        _ => 0,
    };
    1 + inner
}
