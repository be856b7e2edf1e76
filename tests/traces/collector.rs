//! A collector: takes spans as OTLP over HTTP brings them, in JSON, and keeps them for the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::*;

/// The collector's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// That it has taken all.
    Takes,
    /// 503.
    Refuses,
    /// Nothing.
    IsSilent,
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
    pub fn start(manner: Manner) -> Self {
        Self::on(server().0, manner)
    }

    /// One at an address of the test's choice.
    pub fn on(listener: TcpListener, manner: Manner) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, address) = (Arc::clone(&requests), listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer_all(stream, manner, &kept));
            }
        });
        Self { address, requests }
    }

    /// The `[traces]` of a relay that tells it.
    pub fn table(&self, name: &str, more: &str) -> String {
        format!("[traces]\nendpoint = \"http://{}\"\nname = \"{name}\"\n{more}\n", self.address)
    }

    /// Everything that has come.
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

    /// How many requests have come.
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

/// The value of an attribute; nothing where there is none.
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

    /// When it began and ended, in nanoseconds since 1970.
    pub fn times(&self) -> (u64, u64) {
        let time = |key: &str| self.json[key].as_str().unwrap().parse().unwrap();
        (time("startTimeUnixNano"), time("endTimeUnixNano"))
    }

    /// When something happened in it.
    pub fn moment(&self, name: &str) -> Option<u64> {
        let events = self.json["events"].as_array()?;
        let event = events.iter().find(|event| event["name"] == name)?;
        Some(event["timeUnixNano"].as_str().unwrap().parse().unwrap())
    }
}

fn answer_all(mut stream: TcpStream, manner: Manner, requests: &Mutex<Vec<Value>>) {
    while let Some(request) = request(&mut stream) {
        if manner == Manner::Takes {
            requests.lock().unwrap().push(request);
        }
        let (status, body) = match manner {
            Manner::Takes => ("200 OK", "{\"partialSuccess\":{}}"),
            Manner::Refuses => ("503 Service Unavailable", "later"),
            Manner::IsSilent => {
                // Until the relay gives up.
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

/// Reads one request; none when the connection ends.
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
