//! Hooks from closures.

use std::fmt;

use crate::message::{AgentMessage, ApiKey, Message, Messages, Transcript};
use crate::tool::{BoxError, BoxFuture};

use super::{
    BoxedHooks, CallContext, CallOutcome, Decision, Hooks, PrepareRequest, RequestContext, RequestPlan, ResultPatch,
    TurnSummary,
};

/// What a closure may return for a `T`: a `T`, or a `Result` of one.
pub trait IntoHookResult<T> {
    /// The result.
    ///
    /// # Errors
    /// The hook's own error.
    fn into_hook_result(self) -> Result<T, BoxError>;
}

impl<T> IntoHookResult<T> for T {
    fn into_hook_result(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> IntoHookResult<T> for Result<T, E> {
    fn into_hook_result(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

type HookFn<C, T> = Box<dyn Fn(C) -> BoxFuture<'static, Result<T, BoxError>> + Send + Sync>;

/// Boxes a closure once; each call boxes its future.
fn boxed<C: 'static, T, F, Fut>(hook: F) -> HookFn<C, T>
where
    F: Fn(C) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoHookResult<T>> + Send + 'static,
{
    Box::new(move |cx| {
        let answer = hook(cx);
        Box::pin(async move { answer.await.into_hook_result() })
    })
}

macro_rules! hook_fns {
    ($($(#[$doc:meta])* $name:ident: $context:ty => $answer:ty;)*) => {
        /// Hooks made of closures, over other hooks that decide where there is no closure.
        ///
        /// A closure that captures state gives each of its futures a copy:
        /// `move |cx| { let log = log.clone(); async move { .. } }`. An `async` closure would lend it.
        ///
        /// ```
        /// use turnstate::{Decision, HookFns, Message};
        /// let hooks = HookFns::<Message>::new()
        ///     .before_tool_call(async |cx| if cx.name() == "rm" { Decision::block("no") } else { Decision::Allow })
        ///     .should_stop_after_turn(async |turn| turn.new_messages.len() > 100);
        /// assert_eq!(format!("{hooks:?}"), "HookFns([before_tool_call, should_stop_after_turn])");
        /// ```
        pub struct HookFns<M = Message> {
            /// None: the defaults, without a box for each.
            base: Option<BoxedHooks<M>>,
            $($name: Option<HookFn<$context, $answer>>,)*
        }

        impl<M: AgentMessage> HookFns<M> {
            /// No closures yet.
            pub fn new() -> Self {
                Self { base: None, $($name: None,)* }
            }

            /// No closures yet, over `base`.
            pub fn over(base: impl Hooks<M>) -> Self {
                Self::new().with_base(base)
            }

            /// The same closures over another base.
            #[must_use]
            pub fn with_base(mut self, base: impl Hooks<M>) -> Self {
                self.base = Some(BoxedHooks::new(base));
                self
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name<F, Fut>(mut self, hook: F) -> Self
                where
                    F: Fn($context) -> Fut + Send + Sync + 'static,
                    Fut: Future<Output: IntoHookResult<$answer>> + Send + 'static,
                {
                    self.$name = Some(boxed(hook));
                    self
                }
            )*
        }

        impl<M: AgentMessage> Hooks<M> for HookFns<M> {
            $(
                async fn $name(&self, cx: $context) -> Result<$answer, BoxError> {
                    match (&self.$name, &self.base) {
                        (Some(hook), _) => hook(cx).await,
                        (None, Some(base)) => base.$name(cx).await,
                        (None, None) => Hooks::<M>::$name(&(), cx).await,
                    }
                }
            )*
        }

        impl<M> fmt::Debug for HookFns<M> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let set = [$((stringify!($name), self.$name.is_some()),)*];
                let set = set.iter().filter(|(_, set)| *set).map(|(name, _)| *name);
                write!(f, "HookFns([{}])", set.collect::<Vec<_>>().join(", "))
            }
        }
    };
}

hook_fns! {
    /// Sets [`Hooks::prepare_request`].
    prepare_request: PrepareRequest<M> => RequestPlan<M>;
    /// Sets [`Hooks::transform_context`].
    transform_context: RequestContext<M> => Transcript<M>;
    /// Sets [`Hooks::convert_to_llm`].
    convert_to_llm: RequestContext<M> => Messages<Message>;
    /// Sets [`Hooks::api_key`].
    api_key: String => Option<ApiKey>;
    /// Sets [`Hooks::before_tool_call`].
    before_tool_call: CallContext<M> => Decision;
    /// Sets [`Hooks::after_tool_call`].
    after_tool_call: CallOutcome<M> => ResultPatch;
    /// Sets [`Hooks::should_stop_after_turn`].
    should_stop_after_turn: TurnSummary<M> => bool;
}

impl<M: AgentMessage> Default for HookFns<M> {
    fn default() -> Self {
        Self::new()
    }
}
