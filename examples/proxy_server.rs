//! A proxy for models on the loopback interface, with a scripted model behind it:
//!
//! ```text
//! cargo run --example proxy_server --features proxy-server [PORT]
//! ```
//!
//! `PORT` is 8787 if not given. The example `proxy_chat` is its client.

use std::convert::Infallible;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::AUTHORIZATION;
use axum::response::Response as HttpResponse;
use axum::routing::post;
use futures_util::StreamExt;
use serde_json::json;
use turnstate::proxy::{PATH, ProxyServer, Refusal};
use turnstate::{ApiKey, Message, Model, Request, Response, ScriptedModel};

/// What clients must know. A real server looks tokens up.
const TOKEN: &str = "demo-token";

/// Who asks.
struct User(&'static str);

type Server = ProxyServer<ScriptedModel, User>;

/// The model: it looks up the weather if it is asked about it and may, and else says little.
fn model() -> ScriptedModel {
    ScriptedModel::new()
        .pace(|| tokio::time::sleep(Duration::from_millis(30)))
        .fallback(reply)
}

fn reply(request: &Request) -> Response {
    match request.messages.last().map(|message| &**message) {
        Some(Message::ToolResult(result)) if result.is_error => {
            Response::new().text(format!("I could not find out: {}.", result.text()))
        }
        Some(Message::ToolResult(result)) => {
            let weather = result.text();
            let advice = if weather.contains("rain") {
                "Take an umbrella."
            } else {
                "Leave the umbrella at home."
            };
            Response::new().text(format!("{weather}. {advice}"))
        }
        Some(Message::User(user)) => {
            let question = user.content.text();
            match city(&question) {
                Some(city) if request.tools.find("weather").is_some() => Response::new()
                    .thinking("They want to know the weather. There is a tool for that.")
                    .text("Let me look.")
                    .call("weather", json!({ "city": city })),
                _ => Response::new().text(format!("You said: {question}. Ask me about the weather in a city.")),
            }
        }
        _ => Response::new().text("Hello."),
    }
}

/// The word behind "in", if it is one of the weather.
fn city(question: &str) -> Option<&str> {
    let (_, rest) = question.split_once(" in ")?;
    let city = rest.split_whitespace().next()?;
    Some(city.trim_end_matches(|c: char| !c.is_alphanumeric()))
}

fn server() -> Server {
    ProxyServer::new(model(), async |token: ApiKey| match token.expose() {
        TOKEN => Ok(User("demo")),
        _ => Err(Refusal::unauthorized("unknown token")),
    })
    .prepare(async |user: User, mut request| {
        // The model is taken from the server's own list, by its id: the rest of what a client says of it could send
        // the server's key anywhere.
        if request.model.id != "scripted-1" {
            return Err(Refusal::forbidden(format!("no such model: {}", request.model.id)));
        }
        request.model = Arc::new(Model::new("scripted-1"));
        request.api_key = Some(ApiKey::new("the provider's key, which clients never see"));
        println!("{}: a request of {} messages", user.0, request.messages.len());
        Ok(request)
    })
}

async fn handle(State(server): State<Server>, request: HttpRequest) -> Result<HttpResponse, String> {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let answer = server.answer(authorization, body.into_data_stream()).await;
    if let Some(refusal) = answer.refusal() {
        println!("refused with {refusal}");
    }
    let mut response = HttpResponse::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(*name, *value);
    }
    // Dropping this body, as the framework does when the client is gone, cancels the model.
    let body = Body::from_stream(answer.map(Ok::<_, Infallible>));
    response.body(body).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(8787), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on http://{}{PATH}", listener.local_addr()?);
    let app = Router::new().route(PATH, post(handle)).with_state(server());
    axum::serve(listener, app).await?;
    Ok(())
}
