//! The body of a hook holds something that is not `Send` over an await.
use std::rc::Rc;
use turnstate::{ApiKey, BoxError, Hooks};

struct KeyRing;

impl Hooks for KeyRing {
    async fn api_key(&self, provider: String) -> Result<Option<ApiKey>, BoxError> {
        let held = Rc::new(provider);
        std::future::ready(()).await;
        Ok(Some(held.as_str().into()))
    }
}

fn main() {}
