//! A collector that receives spans by OTLP over HTTP in JSON, and stores them for the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::*;

/// Response of the collector to each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorMode {
    /// 200: all spans are accepted.
    Accept,
    /// 503 Service Unavailable.
    Unavailable,
    /// No response.
    Hang,
}

/// A running collector.
pub struct Collector {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
}

/// One span, and the relay that has sent it.
#[derive(Debug, Clone)]
pub struct Span {
    pub relay: String,
    pub json: Value,
}

impl Collector {
    pub fn start(mode: CollectorMode) -> Self {
        Self::on(server().0, mode)
    }

    /// Starts a collector on this listener.
    pub fn on(listener: TcpListener, mode: CollectorMode) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, address) = (Arc::clone(&requests), listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer_all(stream, mode, &kept));
            }
        });
        Self { address, requests }
    }

    /// The `[traces]` table of a relay that exports to this collector.
    pub fn table(&self, name: &str, more: &str) -> String {
        format!("[traces]\nendpoint = \"http://{}\"\nname = \"{name}\"\n{more}\n", self.address)
    }

    /// All received spans.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|request| request["resourceSpans"].as_array().unwrap().clone());
        let of = |resource: Value| {
            assert_eq!(attribute(&resource["resource"], "service.name"), "ekiden");
            let relay = attribute(&resource["resource"], "service.instance.id").as_str().unwrap().to_owned();
            let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap().clone();
            spans.into_iter().map(move |json| Span { relay: relay.clone(), json })
        };
        resources.flat_map(of).collect()
    }

    /// The number of received requests.
    pub fn requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Waits for the first span of this name from that relay.
    pub fn span(&self, relay: &str, name: &str) -> Span {
        eventually(&format!("{name} of {relay}"), || {
            self.spans().into_iter().find(|span| span.relay == relay && span.json["name"] == name)
        })
    }
}

/// The value of an attribute; null if the attribute is missing.
pub fn attribute(of: &Value, key: &str) -> Value {
    let all = of["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"]);
    let text = |value: &Value| value.as_object().unwrap().values().next().unwrap().clone();
    found.map(text).unwrap_or_default()
}

impl Span {
    pub fn attribute(&self, key: &str) -> Value {
        attribute(&self.json, key)
    }

    /// The start and the end of the span, in nanoseconds since 1970.
    pub fn times(&self) -> (u64, u64) {
        let time = |key: &str| self.json[key].as_str().unwrap().parse().unwrap();
        (time("startTimeUnixNano"), time("endTimeUnixNano"))
    }

    /// The time of the event `name` of the span, in nanoseconds since 1970; `None` if the span has no such event.
    pub fn event_time(&self, name: &str) -> Option<u64> {
        let events = self.json["events"].as_array()?;
        let event = events.iter().find(|event| event["name"] == name)?;
        Some(event["timeUnixNano"].as_str().unwrap().parse().unwrap())
    }
}

fn answer_all(mut stream: TcpStream, mode: CollectorMode, requests: &Mutex<Vec<Value>>) {
    while let Some(request) = request(&mut stream) {
        if mode == CollectorMode::Accept {
            requests.lock().unwrap().push(request);
        }
        let (status, body) = match mode {
            CollectorMode::Accept => ("200 OK", "{\"partialSuccess\":{}}"),
            CollectorMode::Unavailable => ("503 Service Unavailable", "later"),
            CollectorMode::Hang => {
                // Returns when the relay closes the connection.
                let _ = stream.read(&mut [0]);
                return;
            }
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n");
        let answer = format!("{answer}Content-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads one request; `None` when the connection ends.
fn request(stream: &mut TcpStream) -> Option<Value> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}
