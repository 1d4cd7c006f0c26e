//! Servers on this machine that answer as model providers do, for tests.
//!
//! A [`Server`] gives its [`Reply`]s in order, one per connection, and keeps what it was asked.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What a server was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The path of its URL.
    pub path: String,
    /// Its headers, names in lower case; clients send them in any order.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
}

impl Asked {
    /// The value of the header `name` (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// How a server answers.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    stays_open: bool,
}

impl Reply {
    /// An event stream that ends with `body`.
    pub fn stream(body: impl Into<String>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: body.into(),
            stays_open: false,
        }
    }

    /// One `data:` line for each of `frames`.
    pub fn data<'a>(frames: impl IntoIterator<Item = &'a str>) -> Self {
        Self::stream(frames.into_iter().fold(String::new(), |body, frame| {
            body + "data: "
                + frame
                + "

"
        }))
    }

    /// An error of `status`.
    pub fn error(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            ..Self::stream(body)
        }
    }

    /// The same with a further header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same, but the connection stays open behind the body until the client closes it.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.stays_open = true;
        self
    }
}

/// A server on 127.0.0.1. It stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    closed: mpsc::UnboundedReceiver<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on a free port, and answers with `replies`; a request beyond them is not accepted.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (told, closed) = mpsc::unbounded_channel();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let replies: Vec<Reply> = replies.into_iter().collect();
        let record = asked.clone();
        let task = tokio::spawn(async move {
            for reply in replies {
                let Ok((socket, _)) = listener.accept().await else {
                    return;
                };
                // A client that goes away in the middle is part of what is tested.
                let _ = answer(socket, &reply, &record).await;
                let _ = told.send(());
            }
        });
        Ok(Self {
            url,
            asked,
            closed,
            task,
        })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the next connection is over: for a reply that stays open, until the client closed it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if it is dropped.
    pub async fn closed(&mut self) {
        self.closed.recv().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(socket: TcpStream, reply: &Reply, record: &Mutex<Vec<Asked>>) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let asked = receive(&mut socket).await?;
    record.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(reply.body.as_bytes()).await?;
    if reply.stays_open {
        socket.read_to_end(&mut Vec::new()).await?;
    }
    socket.shutdown().await
}

async fn receive(socket: &mut BufReader<TcpStream>) -> io::Result<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: BTreeMap<String, String> = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length");
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    socket.read_exact(&mut body).await?;
    Ok(Asked {
        path: lines
            .first()
            .and_then(|line| line.split(' ').nth(1))
            .unwrap_or_default()
            .to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}
