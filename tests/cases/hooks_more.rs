//! Hooks that fail or panic, each of them, with and without an abort.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use turnstate::BoxError;
use turnstate::machine::RunEnd;

use super::drive::yield_now;
use super::harness::{HOOKS, Rig, calls, one_hook, quick, say, tool};

/// How a hook breaks.
const WAYS: [&str; 4] = ["fails", "fails later", "panics", "panics later"];

/// Breaks.
fn break_off(way: &'static str) -> impl Future<Output = Result<(), BoxError>> + Send + 'static {
    assert!(way != "panics", "oh no");
    async move {
        if way.ends_with("later") {
            yield_now().await;
        }
        assert!(way != "panics later", "oh no");
        Err("oh no".into())
    }
}

/// C016 and its kind: whichever hook fails or panics, the run ends with the full sequence, or the call with an error.
#[test]
fn c016_whichever_hook_breaks_the_sequence_is_whole() {
    let tools = "as ts ms(u) me(u) ms(a) me(a/toolUse) xs(a)";
    for place in HOOKS {
        for way in WAYS {
            let rig = Rig::new([calls("a:t"), say("END")], |agent, _| {
                one_hook(agent.tool(quick("t")), place, move || break_off(way))
            });
            rig.agent.follow_up("f");
            let outcome = rig.prompt("go");
            let text = if let "before" | "after" = place {
                rig.saw(&format!(
                    "{tools} xe(a!) ms(r a) me(r a) te(toolUse)[1] ts ms(a) me(a/stop) te(stop)[0] \
                     ts ms(u f) me(u f) ms(a) me(a/error) te(error)[0] ae[6]"
                ));
                rig.result("a")
            } else {
                if place == "stop" {
                    rig.saw(&format!(
                        "{tools} xe(a) ms(r a) me(r a) te(toolUse)[1] ts ms(a) me(a/error) te(error)[0] ae[4]"
                    ));
                } else {
                    rig.saw("as ts ms(u) me(u) ms(a) me(a/error) te(error)[0] ae[2]");
                }
                assert!(rig.agent.has_queued());
                assert_eq!(rig.agent.error_message(), outcome.error);
                outcome.error.unwrap()
            };
            assert_eq!(outcome.end, RunEnd::Failed);
            let panicked = way.starts_with("panics");
            assert!(
                if panicked {
                    text.ends_with("panicked: oh no")
                } else {
                    text == "oh no"
                },
                "{place}: {text}"
            );
            rig.agent.clear_queues();
        }
    }
}

/// A hook that breaks, or returns, while the run is aborted: aborted, not failed; whatever was asked.
#[test]
fn c069_a_hook_that_breaks_in_an_aborted_run_aborts_it() {
    for place in HOOKS {
        for way in WAYS.into_iter().chain(["returns"]) {
            let rig = Rig::new([calls("a:t"), say("never")], |agent, hand| {
                one_hook(agent.tool(quick("t")), place, move || {
                    hand.agent().abort();
                    let broken = (way != "returns").then(|| break_off(way));
                    async move {
                        match broken {
                            Some(broken) => broken.await,
                            None => Ok(()),
                        }
                    }
                })
            });
            assert_eq!(rig.prompt("go").end, RunEnd::Aborted, "{place} {way}");
            assert!(
                rig.log.line().contains("ms(a) me(a/aborted) te(aborted)[0] ae["),
                "{}",
                rig.log.line()
            );
        }
    }
}

/// A future that panics when it is dropped.
struct Bomb {
    finishes: bool,
    armed: bool,
}

impl Future for Bomb {
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if self.finishes {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.armed || std::thread::panicking(), "dropped");
    }
}

/// Next to C017: foreign futures whose drop panics, finished or not, harm neither the run nor its holder.
#[test]
fn c017_a_future_that_panics_on_drop_is_contained() {
    for place in HOOKS.into_iter().chain(["tool"]) {
        for finishes in [true, false] {
            let bomb = move || Bomb { finishes, armed: true };
            let rig = Rig::new([calls("a:t"), say("1"), say("2")], |agent, _| {
                let tool = tool("t", move |_, _| {
                    let armed = place == "tool";
                    Bomb {
                        finishes: finishes || !armed,
                        armed,
                    }
                    .map(|done| done.map(|()| "ok"))
                });
                one_hook(agent.tool(tool), place, bomb)
            });
            let mut run = rig.start("go");
            if !finishes {
                run.stall();
                rig.agent.abort();
            }
            run.finish();
        }
    }
}
