//! Real models for [`turnstate`]: [`GenaiModel`] is a [`StreamFn`](turnstate::StreamFn) over the [`genai`] crate, which
//! knows OpenAI, Anthropic, Gemini, Ollama, Groq, DeepSeek, OpenRouter and some thirty more providers.
//!
//! ```no_run
//! use turnstate::{Agent, Retry};
//! use turnstate_genai::GenaiModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // With ANTHROPIC_API_KEY in the environment.
//! let agent = Agent::builder("claude-sonnet-4-5", Retry::tokio(GenaiModel::new())).build();
//! let answer = agent.prompt("Say hello.")?.await.into_result()?;
//! println!("{}", answer.text());
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! Imports go downwards only.
//!
//! | Module | Subject |
//! |---|---|
//! | `model` | [`GenaiModel`], the stream function |
//! | `stream` | one answer: polls genai, and tells what the layers below make of it |
//! | `target`, `options`, `request` | a request of turnstate's as one of genai's |
//! | `frames` | what is on the wire, of the protocols that are known here |
//! | `events` | what genai makes of the others |
//! | `answer` | blocks and their ends: what an answer is, whoever gave it |
//! | `failure`, `usage` | what went wrong, what it cost |

mod answer;
mod events;
mod failure;
mod frames;
mod model;
mod options;
mod request;
mod stream;
mod target;
mod usage;

pub use genai;
pub use model::GenaiModel;
pub use stream::GenaiStream;

/// Compiles the program of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
