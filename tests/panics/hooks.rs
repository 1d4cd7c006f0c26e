//! Panics of hooks.

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use turnstate::machine::RunEnd;
use turnstate::{BoxError, Decision, HookFns, Message, ResultPatch};

use super::plant::{Dropped, Ending, Fuse, agent, result, script, survives, tool_t};
use super::robust_support::drive::drive;

/// Hooks of which the `n`th awaits what `wrap` makes of nothing before it answers.
fn hook_of<W>(n: usize, wrap: W) -> HookFns
where
    W: Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Clone + Send + Sync + 'static,
{
    macro_rules! hook {
        ($cx:ident => $answer:expr) => {
            move |$cx| {
                let before = wrap(async {}.boxed());
                async move {
                    before.await;
                    $answer
                }
            }
        };
    }
    let hooks = HookFns::<Message>::new();
    match n {
        0 => hooks.prepare_request(hook!(request => request.plan)),
        1 => hooks.transform_context(hook!(cx => cx.transcript)),
        2 => hooks.convert_to_llm(hook!(cx => cx.transcript.request())),
        3 => hooks.api_key(hook!(_provider => None)),
        4 => hooks.should_stop_after_turn(hook!(_turn => false)),
        5 => hooks.before_tool_call(hook!(_cx => Decision::Allow)),
        _ => hooks.after_tool_call(hook!(_outcome => ResultPatch::keep())),
    }
}

/// The hooks whose failure is the run's, and those whose failure is the call's.
const RUN_HOOKS: std::ops::Range<usize> = 0..5;
const CALL_HOOKS: std::ops::Range<usize> = 5..7;

#[test]
fn of_a_hook() {
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        for at_call in [true, false] {
            let fuse = Fuse::new();
            let planted = fuse.clone();
            let hooks = hook_of(n, move |before| {
                if at_call {
                    planted.blow();
                }
                let planted = planted.clone();
                before.inspect(move |()| planted.blow()).boxed()
            });
            let outcome = survives(&agent(|builder| builder.hooks(hooks)), &fuse, Ending::Done).unwrap();
            if CALL_HOOKS.contains(&n) {
                assert_eq!(outcome.end, RunEnd::Completed);
                assert!(result(&outcome).ends_with("panicked: boom"), "{}", result(&outcome));
            } else {
                assert_eq!(outcome.end, RunEnd::Failed);
                assert_eq!(outcome.error.as_deref(), Some("panicked: boom"));
            }
        }
    }
}

#[test]
fn of_the_drop_of_a_hook() {
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        for ending in [Ending::Done, Ending::Aborted, Ending::Dropped] {
            let fuse = Fuse::new();
            let hooks = HookOfDrop {
                n,
                fuse: fuse.clone(),
                pends: ending != Ending::Done,
            };
            let outcome = survives(&agent(|builder| builder.hooks(hooks)), &fuse, ending);
            if ending == Ending::Done {
                // An agent's hooks are wrapped, and the wrapper's poll drops them: it is still the hook that panics.
                let outcome = outcome.unwrap();
                let end = if RUN_HOOKS.contains(&n) {
                    RunEnd::Failed
                } else {
                    RunEnd::Completed
                };
                assert_eq!(outcome.end, end, "hook {n}");
            }
        }
    }
}

/// Hooks of which the `n`th gives a future whose drop panics, once.
struct HookOfDrop {
    n: usize,
    fuse: Fuse,
    pends: bool,
}

impl HookOfDrop {
    fn answer<T: Send + 'static>(
        &self,
        n: usize,
        answer: T,
    ) -> impl Future<Output = Result<T, BoxError>> + Send + use<T> {
        let planted = n == self.n && !self.fuse.blew();
        let pends = planted && self.pends;
        let answered: BoxFuture<'static, _> = async move {
            if pends {
                std::future::pending::<()>().await;
            }
            Ok(answer)
        }
        .boxed();
        let fuse = if planted { self.fuse.clone() } else { Fuse::spent() };
        Dropped(answered, fuse)
    }
}

impl turnstate::Hooks for HookOfDrop {
    fn prepare_request(
        &self,
        request: turnstate::PrepareRequest,
    ) -> impl Future<Output = Result<turnstate::RequestPlan<Message>, BoxError>> + Send {
        self.answer(0, request.plan)
    }

    fn transform_context(
        &self,
        cx: turnstate::RequestContext,
    ) -> impl Future<Output = Result<turnstate::Transcript<Message>, BoxError>> + Send {
        self.answer(1, cx.transcript)
    }

    fn convert_to_llm(
        &self,
        cx: turnstate::RequestContext,
    ) -> impl Future<Output = Result<turnstate::Messages<Message>, BoxError>> + Send {
        self.answer(2, cx.transcript.request())
    }

    fn api_key(&self, _: String) -> impl Future<Output = Result<Option<turnstate::ApiKey>, BoxError>> + Send {
        self.answer(3, None)
    }

    fn should_stop_after_turn(&self, _: turnstate::TurnSummary) -> impl Future<Output = Result<bool, BoxError>> + Send {
        self.answer(4, false)
    }

    fn before_tool_call(&self, _: turnstate::CallContext) -> impl Future<Output = Result<Decision, BoxError>> + Send {
        self.answer(5, Decision::Allow)
    }

    fn after_tool_call(&self, _: turnstate::CallOutcome) -> impl Future<Output = Result<ResultPatch, BoxError>> + Send {
        self.answer(6, ResultPatch::keep())
    }
}
/// Panics where the future is made, outside of any poll of it.
struct Early(Fuse);
impl turnstate::Hooks for Early {
    fn api_key(&self, _: String) -> impl Future<Output = Result<Option<turnstate::ApiKey>, BoxError>> + Send {
        self.0.blow();
        std::future::ready(Ok(None))
    }
}

#[test]
fn of_a_hook_of_a_static_loop() {
    // Nothing wraps them: once a hook has answered, its answer counts.
    for n in RUN_HOOKS.chain(CALL_HOOKS) {
        let hooks = HookOfDrop {
            n,
            fuse: Fuse::new(),
            pends: false,
        };
        let fuse = hooks.fuse.clone();
        let mut config = turnstate::LoopConfig::new("m");
        config.plan.tools = [tool_t()].into();
        let prompt = vec![Message::user("go").into()];
        let mut run = Box::pin(turnstate::agent_loop(prompt, config, script(), hooks).unwrap());
        let _: Vec<_> = drive(run.by_ref().collect());
        let outcome = run.outcome().unwrap();
        assert!(fuse.blew());
        assert_eq!(
            (outcome.end, outcome.text().as_str()),
            (RunEnd::Completed, "done"),
            "hook {n}"
        );
    }

    let config = turnstate::LoopConfig::new("m");
    let prompt = vec![Message::user("go").into()];
    let mut run = Box::pin(turnstate::agent_loop(prompt, config, script(), Early(Fuse::new())).unwrap());
    let events: Vec<_> = drive(run.by_ref().collect());
    assert_eq!(events.last().unwrap().kind(), "agent_end");
    assert_eq!(run.outcome().unwrap().error.as_deref(), Some("panicked: boom"));
}
