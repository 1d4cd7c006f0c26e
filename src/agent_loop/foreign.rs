//! Asking hooks and the clock.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use super::config::Clock;
use crate::tool::BoxError;

pub(crate) use crate::tool::foreign::{catch, error_text};

/// The app's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) Clock);

impl Time {
    /// Milliseconds since the Unix epoch; 0 if the clock panics.
    pub(super) fn now(self) -> u64 {
        catch(self.0).unwrap_or_default()
    }
}

/// Why a hook gave no answer.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The run was aborted first.
    Aborted,
    /// It failed.
    Failed(String),
}

/// Asks a hook, as long as the run is not aborted. After an abort not even a ready answer counts (I6).
pub(super) async fn ask<T, F>(cancel: &CancellationToken, hook: impl FnOnce() -> F) -> Result<T, Stopped>
where
    F: Future<Output = Result<T, BoxError>>,
{
    if cancel.is_cancelled() {
        return Err(Stopped::Aborted);
    }
    let mut asked = pin!(Some(catch(hook).map_err(Stopped::Failed)?));
    let mut cancelled = pin!(cancel.cancelled());
    let answer = poll_fn(|cx| {
        let Some(hook) = asked.as_mut().as_pin_mut().filter(|_| !cancel.is_cancelled()) else {
            return Poll::Ready(Err(Stopped::Aborted));
        };
        match catch(|| hook.poll(cx)) {
            // Woken by the hook's own future, or by the token.
            Ok(Poll::Pending) => cancelled.as_mut().poll(cx).map(|()| Err(Stopped::Aborted)),
            _ if cancel.is_cancelled() => Poll::Ready(Err(Stopped::Aborted)),
            Ok(Poll::Ready(Ok(answer))) => Poll::Ready(Ok(answer)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Err(Stopped::Failed(error_text(error)))),
            Err(panic) => Poll::Ready(Err(Stopped::Failed(panic))),
        }
    })
    .await;
    // The drop of a foreign future is foreign code, too.
    let _ = catch(|| asked.set(None));
    answer
}
