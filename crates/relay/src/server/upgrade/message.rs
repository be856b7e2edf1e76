//! Messages between two processes of one relay. The versions may differ: unknown messages are ignored, and names never
//! change.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// A message of the handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Message {
    /// The new process has begun.
    Here {
        /// The sender's pid.
        pid: u32,
        /// The sender's version.
        version: String,
    },
    /// An inherited object; its descriptor comes along.
    Thing {
        /// The kind of object.
        thing: Inherited,
    },
    /// All objects were sent.
    All,
    /// The new process serves.
    Serves,
    /// The new process cannot serve.
    Failed {
        /// The reason, in words.
        why: String,
    },
    /// The new process is the relay from now on.
    Go,
    /// A message of another version.
    #[serde(other)]
    Unknown,
}

/// Something that is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Inherited {
    /// A listening socket; a listener may have several.
    Socket {
        /// The name of the listener.
        listener: String,
        /// The configured address, possibly with port 0.
        asked: SocketAddr,
    },
    /// The admin listener.
    Admin {
        /// Its configured address.
        at: String,
    },
    /// A queue of first packets.
    Queue {
        /// Number of the queue.
        number: u16,
    },
    /// The device of a tunnel.
    Device {
        /// The device's name.
        name: String,
        /// The configured MTU, in bytes.
        mtu: u32,
        /// The networks routed into the device, with the source address of this host's own programs there.
        routed: Vec<(String, Option<IpAddr>)>,
    },
    /// Something of another version.
    #[serde(other)]
    Unknown,
}

/// All that is handed over.
pub type Inheritance = Vec<(Inherited, OwnedFd)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A version that knows more may come next, and one that knows less.
    #[test]
    fn what_is_not_known_is_passed_over() {
        for (text, message) in [
            (r#"{"is":"go"}"#, Message::Go),
            (r#"{"is":"go","but":"slowly"}"#, Message::Go),
            (r#"{"is":"something","new":1}"#, Message::Unknown),
            (r#"{"is":"thing","thing":{"of":"timer","rings":2}}"#, Message::Thing { thing: Inherited::Unknown }),
            (
                r#"{"is":"thing","thing":{"of":"queue","number":7}}"#,
                Message::Thing { thing: Inherited::Queue { number: 7 } },
            ),
        ] {
            assert_eq!(serde_json::from_str::<Message>(text).unwrap(), message, "{text}");
        }
        let message = Message::Here { pid: 7, version: "1.2.3".to_owned() };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(text, r#"{"is":"here","pid":7,"version":"1.2.3"}"#);
    }
}
