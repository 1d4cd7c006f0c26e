//! What a valid value becomes.

use serde_json::Value;

/// Every integral float as an integer, so that values can be compared but for that.
pub(crate) fn integral(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0);
            // In full, as `{:?}` writes an exponent from 1e16 on.
            let text = float.map(|float| format!("{float:.0}")).unwrap_or_default();
            let unsigned = text.parse::<u64>().map(Value::from);
            let integer = unsigned.or_else(|_| text.parse::<i64>().map(Value::from));
            integer.unwrap_or_else(|_| value.clone())
        }
        Value::Array(items) => items.iter().map(integral).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), integral(value)))
            .collect(),
        _ => value.clone(),
    }
}
