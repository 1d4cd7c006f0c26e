//! The tools of an agent.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::Tool;
use super::foreign::{catch, error_text};
use crate::machine::ExecutionMode;
use crate::message::{ToolCall, ToolResult};
use crate::schema::{ArgumentsSchema, ValidatedArguments};

/// Tools with distinct names, in the order registered. A cheap handle.
///
/// Of several tools of one name the first is kept and the others are left out: they could never be called, and
/// providers refuse requests that name a tool twice.
///
/// In JSON it is what a model is told: a list of names, descriptions and parameters.
///
/// ```
/// use serde_json::json;
/// use turnstate::{ToolSet, json_tool};
///
/// let schema = json!({ "type": "object", "properties": {} });
/// let tools = ToolSet::new().with(json_tool("now", "The time", schema, async |_, _| "noon"));
/// assert!(tools.find("now").is_some());
/// assert_eq!(
///     serde_json::to_string(&tools).unwrap(),
///     r#"[{"name":"now","description":"The time","parameters":{"type":"object","properties":{}}}]"#,
/// );
/// ```
#[derive(Clone, Default)]
pub struct ToolSet(Arc<[Arc<RegisteredTool>]>);

impl ToolSet {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same tools and one more, unless its name is taken. The others are shared, not compiled again.
    #[must_use]
    pub fn with(&self, tool: impl Tool) -> Self {
        let mut entries = self.0.to_vec();
        register(&mut entries, Arc::new(tool));
        Self(entries.into())
    }

    /// Whether both are the very same set, not just equal ones.
    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The tool of this name. Names are compared as they are, also empty ones.
    pub fn find(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        // A scan: a few dozen comparisons are nothing beside the call that follows.
        self.iter().find(|entry| entry.name() == name)
    }

    /// Takes a call up to where hooks are asked: finds its tool, lets that [prepare](Tool::prepare_arguments) the
    /// arguments, and validates them.
    ///
    /// # Errors
    /// The error result that answers a call which cannot be run. A panic of the tool is one.
    pub fn check(&self, call: &ToolCall) -> Result<(&Arc<RegisteredTool>, ValidatedArguments), Box<ToolResult>> {
        let tool = self.tool_of(call)?;
        if let Some(error) = &call.arguments_error {
            return Err(refused(format!("Tool call was not executed: {error}")));
        }
        let prepared = catch(|| tool.tool.prepare_arguments(call.arguments.clone()));
        let prepared = prepared.map_err(|panic| refused(format!("Tool {} {panic}", call.name)))?;
        let arguments = prepared.map_err(|error| refused(error_text(error)))?;
        Ok((tool, tool.validate(call, arguments)?))
    }

    /// How a batch of calls is run: one by one if the tool of any of them wishes it, else as `by_default`.
    pub fn execution_mode<'a>(
        &self,
        calls: impl IntoIterator<Item = &'a Arc<ToolCall>>,
        by_default: ExecutionMode,
    ) -> ExecutionMode {
        let mut tools = calls.into_iter().filter_map(|call| self.find(&call.name));
        if tools.any(|tool| tool.execution_mode == Some(ExecutionMode::Sequential)) {
            ExecutionMode::Sequential
        } else {
            by_default
        }
    }

    /// The tool of a call, or the result that says there is none.
    pub(crate) fn tool_of(&self, call: &ToolCall) -> Result<&Arc<RegisteredTool>, Box<ToolResult>> {
        self.find(&call.name)
            .ok_or_else(|| refused(format!("Tool {} not found", call.name)))
    }

    /// The tools, in the order registered.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<RegisteredTool>> {
        self.0.iter()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn register(entries: &mut Vec<Arc<RegisteredTool>>, tool: Arc<dyn Tool>) {
    let name = tool.name();
    if entries.iter().all(|entry| entry.name() != name) {
        let name = name.into();
        entries.push(Arc::new(RegisteredTool::new(name, tool)));
    }
}

fn refused(text: String) -> Box<ToolResult> {
    Box::new(ToolResult::error(text))
}

impl<T: Into<Arc<dyn Tool>>> FromIterator<T> for ToolSet {
    fn from_iter<I: IntoIterator<Item = T>>(tools: I) -> Self {
        let mut entries = Vec::new();
        tools.into_iter().for_each(|tool| register(&mut entries, tool.into()));
        Self(entries.into())
    }
}

impl<T: Into<Arc<dyn Tool>>> From<Vec<T>> for ToolSet {
    fn from(tools: Vec<T>) -> Self {
        tools.into_iter().collect()
    }
}

impl<T: Into<Arc<dyn Tool>>, const N: usize> From<[T; N]> for ToolSet {
    fn from(tools: [T; N]) -> Self {
        tools.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a ToolSet {
    type Item = &'a Arc<RegisteredTool>;
    type IntoIter = std::slice::Iter<'a, Arc<RegisteredTool>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for ToolSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|entry| entry.name())).finish()
    }
}

/// A tool of a [`ToolSet`], with its schema compiled.
///
/// It keeps what the tool said about itself when it was registered, so that a run does not depend on foreign getters.
#[derive(Serialize)]
pub struct RegisteredTool {
    name: Box<str>,
    description: Box<str>,
    parameters: Value,
    #[serde(skip)]
    execution_mode: Option<ExecutionMode>,
    #[serde(skip)]
    schema: ArgumentsSchema,
    #[serde(skip)]
    tool: Arc<dyn Tool>,
}

impl RegisteredTool {
    fn new(name: Box<str>, tool: Arc<dyn Tool>) -> Self {
        let parameters = tool.parameters().clone();
        Self {
            name,
            description: tool.description().into(),
            execution_mode: tool.execution_mode(),
            schema: ArgumentsSchema::compile(&parameters),
            parameters,
            tool,
        }
    }

    /// The name by which the model calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the model is told about it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its arguments, as the model is sent it.
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// Its wish how to be run, if it has one.
    pub fn execution_mode(&self) -> Option<ExecutionMode> {
        self.execution_mode
    }

    /// The check its arguments go through.
    pub fn schema(&self) -> &ArgumentsSchema {
        &self.schema
    }

    /// Validates the arguments for a call of it: what the tool prepared, or what a hook put in their place.
    ///
    /// # Errors
    /// The error result that answers the call; it quotes the model's own arguments.
    pub fn validate(&self, call: &ToolCall, arguments: Value) -> Result<ValidatedArguments, Box<ToolResult>> {
        let checked = self.schema.check(&call.name, &call.arguments, arguments);
        checked.map_err(|error| refused(error.to_string()))
    }

    /// The tool itself.
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredTool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::json_tool;

    #[test]
    fn only_copies_are_the_same_set() {
        let set = || ToolSet::new().with(json_tool("t", "t", json!({}), async |_, _| "ok"));
        let one = set();
        assert!(one.ptr_eq(&one.clone()));
        assert!(!one.ptr_eq(&set()));
        assert!(!one.ptr_eq(&one.with(json_tool("u", "u", json!({}), async |_, _| "ok"))));
    }
}
