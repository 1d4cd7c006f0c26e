//! Tools made of functions.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
#[cfg(feature = "schemars")]
use schemars::{JsonSchema, generate::SchemaSettings};
#[cfg(feature = "schemars")]
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{BoxError, BoxFuture, Tool, ToolContext};
use crate::machine::ExecutionMode;
use crate::message::ToolResult;
use crate::schema::ValidatedArguments;

type Outcome = Result<ToolResult, BoxError>;
type Prepare = dyn Fn(Map<String, Value>) -> Result<Value, BoxError> + Send + Sync;
type Run = dyn Fn(ValidatedArguments, ToolContext) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A tool made of a function, by `tool`, `tool_with`, [`json_tool`] or [`json_tool_with`].
pub struct FnTool {
    name: String,
    label: Option<String>,
    description: String,
    parameters: Value,
    execution_mode: Option<ExecutionMode>,
    prepare: Option<Box<Prepare>>,
    run: Box<Run>,
}

/// A tool made of a function of typed arguments.
///
/// The arguments' JSON Schema comes from their type, a struct; doc comments become descriptions. The function is a plain one, an
/// async closure, or any other closure that gives a future. It returns a text, a [`ToolResult`], or a [`Result`] of
/// one of them (see [`IntoToolResult`]); a closure with `?` in it has to name its error type. A closure cannot lend
/// what it has captured to its future: for that, see [`tool_with`].
///
/// Arguments which the schema accepts but the type does not are an error result that tells the model why; the function
/// is not called.
///
/// ```
/// use serde_json::json;
/// use turnstate::{BoxError, Tool, ToolContext, tool};
///
/// /// Where to look.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     /// Its English name.
///     name: String,
///     days: Option<u8>,
/// }
///
/// async fn weather(city: City, cx: ToolContext) -> Result<String, BoxError> {
///     cx.progress("asking the weather service");
///     if city.name.is_empty() {
///         return Err("which city?".into());
///     }
///     Ok(format!("{}: 4 °C, rain for {} days", city.name, city.days.unwrap_or(1)))
/// }
///
/// let weather = tool("weather", "Current weather of a city", weather).with_label("Weather");
/// assert_eq!(
///     weather.parameters(),
///     &json!({
///         "type": "object",
///         "description": "Where to look.",
///         "properties": {
///             "name": { "type": "string", "description": "Its English name." },
///             "days": { "type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 255 },
///         },
///         "required": ["name"],
///     }),
/// );
///
/// // Closures too; the arguments' type tells the schema.
/// let forecast = tool("forecast", "Weather of the next days", async |city: City, _cx| {
///     format!("{}: better", city.name)
/// });
/// let rain = tool("rain", "Whether it rains", async |city: City, _cx| -> Result<String, BoxError> {
///     let days: u8 = city.days.ok_or("on which days?")?;
///     Ok(format!("{days} days of rain"))
/// });
/// assert_eq!(forecast.parameters(), rain.parameters());
/// ```
#[cfg(feature = "schemars")]
pub fn tool<A, F, Fut>(name: impl Into<String>, description: impl Into<String>, run: F) -> FnTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoToolResult> + Send + 'static,
{
    FnTool::new(name, description, parameters_of::<A>(), move |arguments, cx| {
        match cx.deserialize(arguments) {
            Ok(arguments) => boxed(run(arguments, cx)),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    })
}

/// A tool made of a function of shared state and typed arguments: [`tool()`], with a clone of `state` for each call.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use turnstate::tool_with;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Note {
///     text: String,
/// }
///
/// let notes = Arc::new(Mutex::new(Vec::new()));
/// let remember = tool_with(Arc::clone(&notes), "remember", "Takes a note", async |notes, note: Note, _cx| {
///     notes.lock().unwrap().push(note.text);
///     "noted"
/// });
/// # use turnstate::{ToolContext, ToolCall, ToolResult, ToolSet};
/// # use futures_util::FutureExt;
/// # let tools = ToolSet::new().with(remember);
/// # let entry = tools.find("remember").unwrap();
/// # let json = serde_json::json!({ "text": "milk" });
/// # let arguments = entry.schema().check("remember", json.as_object().unwrap(), json.clone()).unwrap();
/// # let (cx, _) = ToolContext::detached(ToolCall::default());
/// # let result = Arc::clone(entry.tool()).execute(arguments, cx).now_or_never().unwrap().unwrap();
/// # assert_eq!(result, ToolResult::text("noted"));
/// // ... and once the model has called it:
/// assert_eq!(*notes.lock().unwrap(), ["milk"]);
/// ```
#[cfg(feature = "schemars")]
pub fn tool_with<S, A, F, Fut>(state: S, name: impl Into<String>, description: impl Into<String>, run: F) -> FnTool
where
    S: Clone + Send + Sync + 'static,
    A: DeserializeOwned + JsonSchema,
    F: Fn(S, A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoToolResult> + Send + 'static,
{
    tool(name, description, move |arguments, cx| {
        run(state.clone(), arguments, cx)
    })
}

/// A tool made of a function of JSON, checked by the JSON Schema `parameters`.
///
/// For tools whose schema is known only at run time, or comes from elsewhere. Without the feature `schemars` all
/// function tools are made by it; [`ToolContext::deserialize`] gives them typed arguments.
///
/// ```
/// use serde_json::json;
/// use turnstate::{BoxError, json_tool};
///
/// #[derive(serde::Deserialize)]
/// struct Add { a: i64, b: i64 }
///
/// let parameters = json!({
///     "type": "object",
///     "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
///     "required": ["a", "b"],
/// });
/// let add = json_tool("add", "Adds", parameters, async |arguments, cx| -> Result<String, BoxError> {
///     let Add { a, b } = cx.deserialize(arguments)?;
///     Ok(a.checked_add(b).ok_or("too large")?.to_string())
/// });
/// # let _ = add;
/// ```
pub fn json_tool<F, Fut>(name: impl Into<String>, description: impl Into<String>, parameters: Value, run: F) -> FnTool
where
    F: Fn(ValidatedArguments, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoToolResult> + Send + 'static,
{
    FnTool::new(name, description, parameters, move |arguments, cx| {
        boxed(run(arguments, cx))
    })
}

/// A tool made of a function of shared state and JSON: [`json_tool`], with a clone of `state` for each call.
pub fn json_tool_with<S, F, Fut>(
    state: S,
    name: impl Into<String>,
    description: impl Into<String>,
    parameters: Value,
    run: F,
) -> FnTool
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S, ValidatedArguments, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoToolResult> + Send + 'static,
{
    json_tool(name, description, parameters, move |arguments, cx| {
        run(state.clone(), arguments, cx)
    })
}

fn boxed(future: impl Future<Output: IntoToolResult> + Send + 'static) -> BoxFuture<'static, Outcome> {
    future.map(IntoToolResult::into_tool_result).boxed()
}

/// The schema of `A`, in the form models are best told.
#[cfg(feature = "schemars")]
fn parameters_of<A: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    // Not every provider follows references. Those of recursive types stay.
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    if schema.get("title").and_then(Value::as_str) == Some(&A::schema_name()) {
        // The name of a Rust type tells a model nothing.
        schema.remove("title");
    }
    if schema.get("type").is_some_and(|kind| kind == "object") {
        // Some providers refuse an object without properties.
        let object = schema.ensure_object();
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    schema.into()
}

impl FnTool {
    fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Value,
        run: impl Fn(ValidatedArguments, ToolContext) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            label: None,
            description: description.into(),
            parameters,
            execution_mode: None,
            prepare: None,
            run: Box::new(run),
        }
    }

    /// Sets its name for people.
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the JSON Schema of its arguments.
    pub fn with_parameters(mut self, parameters: Value) -> Self {
        self.parameters = parameters;
        self
    }

    /// Lets no other call run beside it: a batch in which it is called runs one by one.
    pub fn sequential(self) -> Self {
        self.with_execution_mode(ExecutionMode::Sequential)
    }

    /// Sets how it wishes to be run.
    pub fn with_execution_mode(mut self, mode: ExecutionMode) -> Self {
        self.execution_mode = Some(mode);
        self
    }

    /// Sets what mends the model's arguments before they are validated.
    pub fn with_prepare(
        mut self,
        prepare: impl Fn(Map<String, Value>) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }
}

impl Tool for FnTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &str {
        self.label.as_ref().unwrap_or(&self.name)
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn execution_mode(&self) -> Option<ExecutionMode> {
        self.execution_mode
    }

    fn prepare_arguments(&self, arguments: Map<String, Value>) -> Result<Value, BoxError> {
        match &self.prepare {
            Some(prepare) => prepare(arguments),
            None => Ok(Value::Object(arguments)),
        }
    }

    fn execute(self: Arc<Self>, arguments: ValidatedArguments, cx: ToolContext) -> BoxFuture<'static, Outcome> {
        (self.run)(arguments, cx)
    }
}

impl From<FnTool> for Arc<dyn Tool> {
    fn from(tool: FnTool) -> Self {
        Arc::new(tool)
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool")
            .field("name", &self.name)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// What a function tool may return: whatever converts [into a `ToolResult`](ToolResult), or a [`Result`] of it.
///
/// Implement `From<YourType> for ToolResult` to return your own type.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "return a text, a `ToolResult`, a type that converts into it, or a `Result` of one of them"
)]
pub trait IntoToolResult {
    /// The result, or the error that the model is told.
    ///
    /// # Errors
    ///
    /// If the tool returned one.
    fn into_tool_result(self) -> Result<ToolResult, BoxError>;
}

impl<R: Into<ToolResult>> IntoToolResult for R {
    fn into_tool_result(self) -> Result<ToolResult, BoxError> {
        Ok(self.into())
    }
}

impl<R: Into<ToolResult>, E: Into<BoxError>> IntoToolResult for Result<R, E> {
    fn into_tool_result(self) -> Result<ToolResult, BoxError> {
        match self {
            Ok(result) => Ok(result.into()),
            Err(error) => Err(error.into()),
        }
    }
}
