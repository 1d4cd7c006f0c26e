//! What is sent of a transcript (§4.8), against a checker of I3 and an obvious model of the rule.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, json};
use turnstate::{
    AgentMessage, AssistantContent, AssistantMessage, Content, CustomMessage, CustomRole, Message, Messages,
    StopReason, ToolCall, ToolResultMessage, Transcript,
};

/// An app's own message.
#[derive(Debug, Clone, PartialEq)]
struct Notice(u8);

impl CustomRole for Notice {
    fn role(&self) -> &'static str {
        "notice"
    }
}

type Mixed = CustomMessage<Notice>;

fn user(text: &str) -> Message {
    Message::user(text)
}

fn assistant(stop_reason: StopReason, calls: &[&str]) -> Message {
    let call = |id: &&str| AssistantContent::ToolCall(ToolCall::new(*id, "t", Map::new()).into());
    let message = AssistantMessage {
        content: calls.iter().map(call).collect(),
        stop_reason,
        timestamp: 5,
        ..AssistantMessage::default()
    };
    message.into()
}

/// A result of this call; `mark` tells it from others of the same call.
fn result(id: &str, mark: u64) -> Message {
    let message = ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "t".into(),
        timestamp: mark,
        ..ToolResultMessage::default()
    };
    message.into()
}

/// The rule, for the whole list at once and in no hurry.
fn model(messages: &[Message]) -> Vec<Message> {
    let mut sent = Vec::new();
    let mut rest = messages;
    while let Some((first, behind)) = rest.split_first() {
        let group = behind
            .iter()
            .position(|m| m.as_assistant().is_some())
            .unwrap_or(behind.len());
        let (group, next) = behind.split_at(group);
        match first.as_assistant() {
            Some(answer) if !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) => {
                sent.push(first.clone());
                let mut taken = vec![false; group.len()];
                for call in answer.tool_calls() {
                    let found = (0..group.len()).find(|at| !taken[*at] && answers(&group[*at], &call.id));
                    sent.push(found.map_or_else(|| placeholder(call, answer.timestamp), |at| group[at].clone()));
                    if let Some(at) = found {
                        taken[at] = true;
                    }
                }
            }
            Some(_) => {}
            None => sent.extend(Some(first).filter(|m| m.as_tool_result().is_none()).cloned()),
        }
        sent.extend(group.iter().filter(|m| m.as_tool_result().is_none()).cloned());
        rest = next;
    }
    sent
}

fn answers(message: &Message, id: &str) -> bool {
    message.as_tool_result().is_some_and(|result| result.tool_call_id == id)
}

fn placeholder(call: &ToolCall, timestamp: u64) -> Message {
    let message = ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: vec![Content::text("No result provided")],
        details: Some(json!({})),
        is_error: true,
        usage: None,
        timestamp,
    };
    message.into()
}

/// I3: each call has exactly one result, in call order, right behind its message; no result is without its call.
fn paired<'a>(sent: impl IntoIterator<Item = &'a Message>) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for message in sent {
        if let Some(result) = message.as_tool_result() {
            if open.first() != Some(&result.tool_call_id) {
                return Err(format!(
                    "the result of {:?} while {open:?} are open",
                    result.tool_call_id
                ));
            }
            open.remove(0);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{open:?} without results"));
        }
        if let Some(answer) = message.as_assistant() {
            if answer.stop_reason.is_failure() {
                return Err("a failed answer was sent".into());
            }
            open = answer.tool_calls().map(|call| call.id.clone()).collect();
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} without results"))
    }
}

/// What is sent, as values.
fn sent<M: AgentMessage>(transcript: &Transcript<M>) -> Vec<Message> {
    transcript
        .request()
        .iter()
        .map(|message| Message::clone(message))
        .collect()
}

fn sent_of(messages: Vec<Message>) -> Vec<Message> {
    sent(&Transcript::<Message>::from(messages))
}

/// C030: an answer that failed is left out with its results, and stays in the transcript.
#[test]
fn a_failed_answer_is_not_sent() {
    for stop in [StopReason::Error, StopReason::Aborted] {
        let failed = vec![user("go"), assistant(stop, &["a"]), result("a", 1), user("next")];
        let transcript = Transcript::<Message>::from(failed.clone());
        assert_eq!(sent(&transcript), [user("go"), user("next")]);
        assert_eq!(transcript, Transcript::from(failed));
    }
}

/// C031: a result whose call is gone is left out.
#[test]
fn an_orphaned_result_is_not_sent() {
    let compacted = vec![result("gone", 1), user("summary"), result("gone", 2)];
    assert_eq!(sent_of(compacted), [user("summary")]);
    let aborted = assistant(StopReason::Aborted, &["a"]);
    assert_eq!(
        sent_of(vec![user("go"), aborted, result("a", 1), user("go on")]),
        [user("go"), user("go on")]
    );
}

/// C123: custom messages are dropped, also between a call and its result; a message without text but with calls is kept.
#[test]
fn custom_messages_are_not_sent() {
    let llm = |message: Message| Mixed::from(message);
    let call = assistant(StopReason::ToolUse, &["a"]);
    let transcript = Transcript::from(vec![
        Mixed::Custom(Notice(0)),
        llm(user("go")),
        llm(call.clone()),
        Mixed::Custom(Notice(1)),
        llm(result("a", 1)),
        Mixed::Custom(Notice(2)),
    ]);
    assert_eq!(transcript.len(), 6);
    assert_eq!(sent(&transcript), [user("go"), call, result("a", 1)]);
}

#[test]
fn results_are_put_behind_their_call() {
    let call = || assistant(StopReason::ToolUse, &["a", "b", "a"]);
    let missing = |id: &str| placeholder(&ToolCall::new(id, "t", Map::new()), 5);
    let table = [
        (
            "none came",
            vec![call(), user("u")],
            vec![call(), missing("a"), missing("b"), missing("a"), user("u")],
        ),
        (
            "late and in another order",
            vec![call(), user("u"), result("b", 1), result("a", 2), result("a", 3)],
            vec![call(), result("a", 2), result("b", 1), result("a", 3), user("u")],
        ),
        (
            "one too many",
            vec![call(), result("a", 1), result("a", 2), result("a", 3)],
            vec![call(), result("a", 1), missing("b"), result("a", 2)],
        ),
        (
            "behind the next answer it is another's",
            vec![
                call(),
                result("a", 1),
                result("a", 2),
                assistant(StopReason::Stop, &[]),
                result("b", 3),
            ],
            vec![
                call(),
                result("a", 1),
                missing("b"),
                result("a", 2),
                assistant(StopReason::Stop, &[]),
            ],
        ),
    ];
    for (what, messages, expected) in table {
        assert_eq!(sent_of(messages), expected, "{what}");
    }
}

/// What needs no repair is sent as it is, down to the pointers (I8).
#[test]
fn a_request_shares_the_messages() {
    let messages = [
        user("go"),
        assistant(StopReason::ToolUse, &["a"]),
        result("a", 1),
        assistant(StopReason::Stop, &[]),
    ];
    let transcript = Transcript::<Message>::from(messages.to_vec());
    let request = transcript.request();
    assert!(
        request
            .iter()
            .zip(transcript.iter())
            .all(|(sent, kept)| Arc::ptr_eq(sent, kept))
    );
    assert_eq!(request, *transcript.messages());
}

fn message() -> impl Strategy<Value = Mixed> {
    let id = prop_oneof![Just(""), Just("a"), Just("b")];
    let stop = prop_oneof![
        4 => Just(StopReason::ToolUse),
        2 => Just(StopReason::Stop),
        1 => Just(StopReason::Length),
        1 => Just(StopReason::Error),
        1 => Just(StopReason::Aborted),
    ];
    prop_oneof![
        1 => any::<u8>().prop_map(|n| Mixed::Custom(Notice(n))),
        2 => any::<u8>().prop_map(|n| user(&n.to_string()).into()),
        3 => (stop, prop::collection::vec(id.clone(), 0..4)).prop_map(|(stop, ids)| assistant(stop, &ids).into()),
        5 => (id, any::<u8>()).prop_map(|(id, mark)| result(id, mark.into()).into()),
    ]
}

fn llm_messages(messages: &[Mixed]) -> Vec<Message> {
    messages
        .iter()
        .filter_map(|message| message.as_message().cloned())
        .collect()
}

/// Appends a message of the model's world, and ignores others.
fn push_llm(transcript: &mut Transcript<Message>, message: &Mixed) {
    if let Some(message) = message.as_message() {
        transcript.push(Arc::new(message.clone()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Custom messages or not, message by message or at once: the same rule, and always I3.
    #[test]
    fn the_request_follows_the_rule(messages in prop::collection::vec(message(), 0..40), asks in any::<u64>()) {
        let llm = llm_messages(&messages);
        let expected = model(&llm);
        prop_assert_eq!(paired(&expected), Ok(()));
        prop_assert_eq!(&sent(&Transcript::from(messages.clone())), &expected);
        prop_assert_eq!(&sent_of(llm.clone()), &expected);

        // Asking in between changes nothing.
        let (mut mixed, mut plain) = (Transcript::<Mixed>::new(), Transcript::<Message>::new());
        for (len, message) in messages.iter().enumerate() {
            mixed.push(Arc::new(message.clone()));
            push_llm(&mut plain, message);
            if asks >> (len % 64) & 1 == 1 {
                let expected = model(&llm_messages(&messages[..=len]));
                prop_assert_eq!(&sent(&mixed), &expected);
                prop_assert_eq!(&sent(&plain), &expected);
            }
        }
        prop_assert_eq!(&sent(&mixed), &expected);
        prop_assert_eq!(&sent(&plain), &expected);
        prop_assert_eq!(mixed.messages(), &Messages::from(messages));
        prop_assert_eq!(plain.messages(), &Messages::from(llm));
    }

    /// A copy is a value: whatever is appended to it or to the original, by whom and in whatever order.
    #[test]
    fn copies_that_part_ways_keep_their_value(
        steps in prop::collection::vec((0..6_usize, any::<bool>(), message()), 1..60),
    ) {
        let mut copies = vec![(Transcript::<Message>::new(), Vec::<Message>::new())];
        for (which, copy, message) in steps {
            let which = which % copies.len();
            if copy {
                let (transcript, messages) = &copies[which];
                // A prefix is a copy too.
                let len = messages.len() - usize::from(!messages.is_empty() && messages.len() % 3 == 0);
                copies.push((transcript.prefix(len), messages[..len].to_vec()));
            }
            let (transcript, messages) = &mut copies[which];
            push_llm(transcript, &message);
            messages.extend(message.as_message().cloned());
            // Asking may write placeholders on the storage that copies share.
            prop_assert_eq!(sent(transcript), model(messages));
        }
        for (transcript, messages) in &copies {
            prop_assert_eq!(transcript.messages(), &Messages::from(messages.clone()));
            prop_assert_eq!(sent(transcript), model(messages));
        }
    }
}
