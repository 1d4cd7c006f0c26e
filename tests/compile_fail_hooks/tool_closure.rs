//! A tool closure captures something that is not `Send`.
use std::rc::Rc;
use turnstate::json_tool;

fn main() {
    let answer = Rc::new("noon".to_owned());
    json_tool("now", "The time", serde_json::json!({}), move |_arguments, _cx| {
        std::future::ready(String::clone(&answer))
    });
}
