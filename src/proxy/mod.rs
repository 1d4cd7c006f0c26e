//! A model over HTTP, so that an app needs no provider key of its own.
//!
//! [`ProxyModel`] is a [`StreamFn`](crate::StreamFn) that asks a server, which holds the key and asks the provider. The
//! protocol is that of Pi's `streamProxy`.
//!
//! # The request
//!
//! ```text
//! POST {url}/api/stream
//! Authorization: Bearer {token}
//! Content-Type: application/json
//!
//! {"model": {"id": "m-1", "api": "anthropic-messages", "provider": "anthropic", ..},
//!  "context": {"systemPrompt": "Be brief.", "messages": [..], "tools": [{"name": .., "description": .., "parameters": ..}]},
//!  "options": {"temperature": 0.5, "maxTokens": 64, "reasoning": "low", "sessionId": "s-1"}}
//! ```
//!
//! The options are those of [`StreamOptions`](crate::StreamOptions) and `reasoning`, the thinking level unless it is off;
//! what is not set is absent. The token stands in its header only, and the key of the request
//! ([`Request::api_key`](crate::Request::api_key)) nowhere.
//!
//! # The answer
//!
//! A stream of server-sent events, each the JSON of one [`AssistantEvent`](crate::AssistantEvent):
//!
//! ```text
//! data: {"type":"start"}
//!
//! data: {"type":"text_start","contentIndex":0}
//!
//! data: {"type":"text_delta","contentIndex":0,"delta":"Hi"}
//!
//! data: {"type":"text_end","contentIndex":0}
//!
//! data: {"type":"toolcall_start","contentIndex":1,"id":"call-1","toolName":"weather"}
//!
//! data: {"type":"toolcall_delta","contentIndex":1,"delta":"{\"name\":\"Oslo\"}"}
//!
//! data: {"type":"toolcall_end","contentIndex":1}
//!
//! data: {"type":"done","reason":"toolUse","usage":{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,
//!        "cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}
//! ```
//!
//! or, at any place, `{"type":"error","reason":"error","errorMessage":"overloaded","usage":{..}}`. The connection is closed
//! when `done` or `error` was read.
//!
//! # What is forgiven, and what is an error
//!
//! | What | Becomes |
//! |------|---------|
//! | CR, LF or CRLF; a byte order mark; no space behind `data:`; no blank line between events | nothing special |
//! | An event over several `data` lines, if a blank line ends it | one event |
//! | Comments, other fields, empty data, `[DONE]`, events of unknown type, `toolcall_end` for another block | nothing |
//! | No line end behind the last event | nothing special |
//! | No usage, or one that cannot be read | zero usage |
//! | Halves of a surrogate pair in two deltas of a block | the character, with the second; alone: U+FFFD |
//! | Bytes that are not UTF-8 in a string | U+FFFD |
//! | Gaps in the content index | nothing special |
//! | A content index beyond 4,095 | an error |
//! | A delta or end for a block that did not begin, or is of another kind | an error |
//! | Data that is not JSON, or an event with wrong fields | an error |
//! | A line or event beyond its [limit](DecoderLimits) | an error |
//! | The end of the body without `done` or `error` | an error |
//! | An HTTP status other than 2xx | an error, `Proxy error: ` and what the server says |
//!
//! An error is the last event, and what came before it stands.

#[cfg(feature = "proxy")]
mod client;
#[cfg(feature = "proxy")]
mod client_http;
#[cfg(feature = "proxy")]
mod client_stream;
#[cfg(feature = "proxy")]
mod decode;
#[cfg(feature = "proxy")]
mod decode_blocks;
#[cfg(feature = "proxy")]
mod json_event;
#[cfg(feature = "proxy")]
mod json_text;
#[cfg(feature = "proxy-server")]
mod server;
#[cfg(feature = "proxy")]
mod sse_lines;
mod wire;

#[cfg(feature = "proxy")]
pub use client::{Activity, ProxyConfigError, ProxyModel, ProxyModelBuilder, ProxyToken};
#[cfg(feature = "proxy")]
pub use client_stream::ProxyStream;
#[cfg(feature = "proxy")]
pub use decode::{DecoderLimits, ProxyDecoder};
#[cfg(feature = "proxy-server")]
pub use server::{ProxyAnswer, ProxyServer, Refusal};
pub use wire::PATH;
