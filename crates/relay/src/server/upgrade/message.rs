//! What two processes of one relay say to each other. They may be of different versions: what one does not know it
//! passes over, and names stay.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Message {
    /// The new process has begun.
    Here {
        /// Its pid.
        pid: u32,
        /// The version of its program.
        version: String,
    },
    /// Something that is handed over; its descriptor comes along.
    Thing {
        /// What it is.
        thing: Inherited,
    },
    /// That was everything.
    All,
    /// The new process serves.
    Serves,
    /// It cannot.
    Failed {
        /// Why, in words.
        why: String,
    },
    /// It is the relay from now on.
    Go,
    /// One of another version.
    #[serde(other)]
    Unknown,
}

/// Something that is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Inherited {
    /// A listening socket, one of several for the same listener.
    Socket {
        /// The listener's name.
        listener: String,
        /// Where the configuration wants it, perhaps with port 0.
        asked: SocketAddr,
    },
    /// The admin listener.
    Admin {
        /// Where it answers.
        at: String,
    },
    /// A queue of first packets.
    Queue {
        /// Its number.
        number: u16,
    },
    /// The device of a tunnel.
    Device {
        /// Its name.
        name: String,
        /// Its MTU as it was configured, in bytes.
        mtu: u32,
        /// The networks whose routes lead into it, with the address that this host's own programs have there.
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
