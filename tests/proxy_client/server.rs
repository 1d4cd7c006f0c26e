//! A server that does on each connection what it is told, byte by byte, and tells what it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::px;

/// Longer than anything here takes: it makes a hanging test fail.
pub(crate) const GUARD: Duration = Duration::from_secs(20);

/// What the server does on a connection when it has read the request.
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Nothing, until the client hangs up.
    Hold,
    /// Closes the connection the hard way.
    Reset,
    /// Nothing, for a while: for tests of timeouts.
    Pause(Duration),
    /// Nothing, until it is told to go on.
    Wait(std::sync::Arc<tokio::sync::Notify>),
}

/// What the server saw.
#[derive(Debug)]
pub(crate) enum Saw {
    Request(Received),
    /// The client hung up on the connection with this number, which the server held.
    HungUp(usize),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

/// A server that takes as many connections as it has scripts.
pub(crate) struct Server {
    pub(crate) url: String,
    saw: UnboundedReceiver<Saw>,
}

/// The head of a good answer that ends with the connection.
pub(crate) fn head() -> Step {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    Step::Send(head.into())
}

/// The head of a good answer that says how long it is.
pub(crate) fn head_of_length(length: usize) -> Step {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n");
    Step::Send(head.into())
}

pub(crate) fn events(events: &[Value]) -> Step {
    Step::Send(px(events))
}

/// An answer with another status.
pub(crate) fn status(status: &str, headers: &str, body: &str) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n{body}");
    vec![Step::Send(head.into())]
}

impl Server {
    pub(crate) async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, saw) = unbounded_channel();
        tokio::spawn(async move {
            for (number, script) in scripts.into_iter().enumerate() {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(number, script, socket, tell.clone()));
            }
            // One connection more would be one too many: it is seen as a request, and refused by silence.
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(usize::MAX, Vec::new(), socket, tell.clone()));
            }
        });
        Self { url, saw }
    }

    /// The next thing it sees.
    pub(crate) async fn saw(&mut self) -> Saw {
        timeout(GUARD, self.saw.recv()).await.expect("nothing happens").unwrap()
    }

    pub(crate) async fn request(&mut self) -> Received {
        match self.saw().await {
            Saw::Request(request) => request,
            Saw::HungUp(number) => panic!("no request, but hung up on {number}"),
        }
    }

    /// Waits until the client hung up on connection `number`.
    pub(crate) async fn hung_up(&mut self, number: usize) {
        match self.saw().await {
            Saw::HungUp(got) => assert_eq!(got, number),
            Saw::Request(request) => panic!("not hung up, but asked: {request:?}"),
        }
    }

    /// Asserts that nothing further was seen so far.
    pub(crate) fn saw_nothing_more(&mut self) {
        if let Ok(saw) = self.saw.try_recv() {
            panic!("{saw:?}");
        }
    }
}

async fn serve(number: usize, script: Vec<Step>, socket: TcpStream, tell: UnboundedSender<Saw>) {
    let mut socket = BufReader::new(socket);
    let Some(request) = receive(&mut socket).await else {
        return;
    };
    let _ = tell.send(Saw::Request(request));
    for step in script {
        match step {
            // The client may have hung up already.
            Step::Send(bytes) => drop(socket.write_all(&bytes).await),
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Wait(go_on) => go_on.notified().await,
            Step::Reset => {
                socket.get_ref().set_zero_linger().unwrap();
                return;
            }
            Step::Hold => {
                let mut byte = [0];
                assert!(
                    matches!(socket.read(&mut byte).await, Ok(0) | Err(_)),
                    "a second request on one connection"
                );
                let _ = tell.send(Saw::HungUp(number));
            }
        }
    }
    let _ = socket.shutdown().await;
}

async fn receive(socket: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    socket.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    socket.read_exact(&mut body).await.ok()?;
    Some(Received {
        method,
        path,
        headers,
        body: serde_json::from_slice(&body).ok()?,
    })
}
