//! Calling foreign code: tools, hooks, stream functions, listeners. Its panics are its failures, never ours.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::BoxError;

/// Calls `f`; a panic becomes its text.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    // What `f` touched is not looked at again by the engine once it has panicked: it is dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic_text(&*panic);
        if let Err(of_its_drop) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // It would go on like this.
            std::mem::forget(of_its_drop);
        }
        text
    })
}

/// What an error says of itself. It is spent: its drop is foreign code, too.
pub(crate) fn error_text(error: BoxError) -> String {
    catch(move || error.to_string()).unwrap_or_else(|panic| panic)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}
