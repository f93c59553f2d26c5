//! The input and the result of a trace. This module contains only values.

use std::cell::Cell;
use std::rc::Rc;

use device::cipher::{KEY_BYTES, NONCE_BYTES};
use device::{Class, Key, Nonce, TenantId};
use prost::bytes::Bytes;
use trace::Format;
use units::Nanos;

/// The input of a trace. Cloning shares the payload.
#[derive(Clone, Debug)]
pub struct TraceInput {
    /// The payload, in the format that the trace takes.
    pub payload: Bytes,
    /// Flags and numbers that the caller sets and branches read. A flag is set if it is above zero.
    pub fields: Vec<(String, u32)>,
    /// The function that an RPC of the trace calls.
    pub function: String,
    /// The peer's keys, for traces that encrypt or decrypt.
    pub session: Option<Rc<Session>>,
    /// The number by which the ports identify the peer.
    pub connection: u64,
    /// The tenant that sent the request. Limits and fairness are per tenant.
    pub tenant: TenantId,
    /// The class of the trace's jobs.
    pub class: Class,
    /// The time on the runtime's clock by which the whole trace should be done. It is a soft limit, like the deadlines
    /// of steps.
    pub deadline: Option<Nanos>,
}

impl TraceInput {
    /// Creates a latency-critical request of the default tenant, without fields, function, keys or deadline.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            fields: Vec::new(),
            function: String::new(),
            session: None,
            connection: 0,
            tenant: TenantId::default(),
            class: Class::default(),
            deadline: None,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: u32) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    /// Sets the session, which has the keys.
    #[must_use]
    pub fn session(mut self, session: &Rc<Session>) -> Self {
        self.session = Some(Rc::clone(session));
        self
    }

    /// Sets the function that the trace calls.
    #[must_use]
    pub fn function(mut self, name: impl Into<String>) -> Self {
        self.function = name.into();
        self
    }
}

/// The keys shared with a peer, one per direction, and the number of messages that were encrypted. No nonce is used
/// twice. The session does not agree on keys and does not detect repeated messages.
#[derive(Debug)]
pub struct Session {
    seals: Key,
    opens: Key,
    sealed: Cell<u64>,
}

impl Session {
    /// Creates a session. This side encrypts with the key `seals`, and the peer with the key `opens`. The
    /// keys must differ, because both sides count their nonces from zero.
    ///
    /// # Panics
    /// Panics if the two keys are equal.
    pub fn new(seals: &[u8; KEY_BYTES], opens: &[u8; KEY_BYTES]) -> Rc<Self> {
        assert!(
            seals != opens,
            "two sides that count nonces under one key give both messages away"
        );
        let (seals, opens) = (Key::new(seals), Key::new(opens));
        Rc::new(Self { seals, opens, sealed: Cell::new(0) })
    }

    /// Returns the key to encrypt with, and a nonce that was never used with it. Returns none if all nonces were used.
    pub fn seal(&self) -> Option<(Key, Nonce)> {
        let count = self.sealed.get();
        self.sealed.set(count.checked_add(1)?);
        let mut nonce = [0; NONCE_BYTES];
        nonce[NONCE_BYTES - size_of::<u64>()..].copy_from_slice(&count.to_be_bytes());
        Some((self.seals.clone(), Nonce(nonce)))
    }

    /// Returns the key to decrypt with.
    pub fn open(&self) -> Key {
        self.opens.clone()
    }
}

/// The result of a trace.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The payload after the last step.
    pub payload: Bytes,
    /// The format of the payload.
    pub format: Format,
    /// The function that a received RPC calls. Without a received RPC it is the input's function.
    pub function: String,
    /// The core that `load-balance` picked.
    pub core: Option<usize>,
    /// The result of the last `checksum` op that ran, or none if no such op ran.
    pub checksum: Option<u64>,
    /// The number of ops that ran, including the ops in all arms of forks.
    pub steps: u32,
    /// The number of ops that software ran because a device did not complete them, or because no device had space.
    pub fallbacks: u32,
    /// The time from the start to the end.
    pub total: Nanos,
}
