//! The packets as values. Keys may hold any bytes. Times are in seconds and mean what they mean in
//! text commands, except that no time is negative.

use super::Deadline;
use crate::command::StoreVerb;
use crate::counter::Direction;

/// What all requests have: the part that the answer repeats, and the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The opcode as the client sent it.
    pub opcode: u8,
    /// Whether the client wants no answer in the nominal case. Errors are answered even then.
    pub quiet: bool,
    /// The client's number for this request.
    pub opaque: u32,
    /// The time from which on a client of the same host no longer waits for the answer.
    pub deadline: Deadline,
}

/// One request. If the command has a value ([`Command::value_bytes`]), the value follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What all requests have.
    pub head: Head,
    /// The command.
    pub command: Command<'a>,
}

/// The command of a packet. Every key has 1 to 250 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// The commands get, getk, gat and gatk.
    Get {
        /// The key to look up.
        key: &'a [u8],
        /// Whether the answer contains the key (getk and gatk).
        with_key: bool,
        /// The new expiry for gat and gatk, in seconds.
        touch_exptime_s: Option<i32>,
    },
    /// The command touch, whose answer has the client flags but no value.
    Touch {
        /// The key to touch.
        key: &'a [u8],
        /// The item's new expiry, in seconds.
        exptime_s: i32,
    },
    /// The commands set, add, replace, append and prepend.
    Store(Store<'a>),
    /// The command delete.
    Delete {
        /// The key to delete.
        key: &'a [u8],
        /// The CAS that the item must have, unless it is zero.
        cas: u64,
    },
    /// The commands increment and decrement.
    Arithmetic(Arithmetic<'a>),
    /// The command flush.
    Flush {
        /// The delay in seconds; zero means now.
        delay_s: i32,
    },
    /// The command stat.
    Stat {
        /// The name of the wanted page. It is empty for the general page.
        page: &'a [u8],
    },
    /// The command noop.
    Noop,
    /// The command version.
    Version,
    /// The command quit.
    Quit,
    /// The commands for authentication.
    Sasl(Sasl<'a>),
}

/// A storage command. Its value follows the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The verb. A set, add or replace with a nonzero CAS is [`StoreVerb::Cas`].
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// The client's flags, which only clients interpret.
    pub client_flags: u32,
    /// The expiry, in seconds.
    pub exptime_s: i32,
    /// The length of the value (bytes).
    pub value_bytes: usize,
    /// The CAS that the item must have, unless it is zero.
    pub cas: u64,
}

/// The command increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The direction.
    pub direction: Direction,
    /// The key.
    pub key: &'a [u8],
    /// The amount by which the number changes.
    pub delta: u64,
    /// The number with which a missing item is created.
    pub initial: u64,
    /// The expiry with which a missing item is created, in seconds. If it is none, no item is
    /// created.
    pub exptime_s: Option<i32>,
    /// The CAS that the item must have, unless it is zero.
    pub cas: u64,
}

/// A command for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl<'a> {
    /// Asks for the names of the mechanisms.
    ListMechanisms,
    /// Begins an authentication. The client's first message follows as the value.
    Begin {
        /// The name of the mechanism.
        mechanism: &'a [u8],
        /// The length of the message (bytes).
        value_bytes: usize,
    },
    /// Continues an authentication. The client's next message follows as the value.
    Step {
        /// The name of the mechanism.
        mechanism: &'a [u8],
        /// The length of the message (bytes).
        value_bytes: usize,
    },
}

impl<'a> Command<'a> {
    /// Returns how many bytes of a value follow the packet. Returns none for a command without a
    /// value.
    pub const fn value_bytes(&self) -> Option<usize> {
        match self {
            Command::Store(store) => Some(store.value_bytes),
            Command::Sasl(Sasl::Begin { value_bytes, .. } | Sasl::Step { value_bytes, .. }) => {
                Some(*value_bytes)
            }
            _ => None,
        }
    }

    /// Returns the key of the item that the command is about, if there is one.
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Command::Get { key, .. }
            | Command::Touch { key, .. }
            | Command::Delete { key, .. }
            | Command::Store(Store { key, .. })
            | Command::Arithmetic(Arithmetic { key, .. }) => Some(*key),
            _ => None,
        }
    }
}
