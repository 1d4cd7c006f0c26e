//! The stream of a model is not `Send`. (A closure that gives it is refused by `agent_loop`; but the compiler then lists
//! all stream functions it knows, which differ by features.)
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use turnstate::{AssistantEvent, CancellationToken, LoopConfig, Message, Request, StreamFn, agent_loop};

struct Local(Rc<str>);

impl futures_core::Stream for Local {
    type Item = AssistantEvent;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<AssistantEvent>> {
        Poll::Ready(Some(AssistantEvent::text_delta(0, &*self.0)))
    }
}

struct Model;

impl StreamFn for Model {
    type Stream = Local;

    fn stream(&self, _: Request, _: CancellationToken) -> Local {
        Local("here".into())
    }
}

fn main() {
    let prompt = vec![Message::user("go").into()];
    let _ = agent_loop(prompt, LoopConfig::new("m"), Model, ());
}
