//! The input and the result of a trace. Values only.

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
    /// The payload, of the format that the trace takes.
    pub payload: Bytes,
    /// Flags and numbers that the caller decides, for branches to read; a flag is set above zero.
    pub fields: Vec<(String, u32)>,
    /// The function that an RPC of the trace calls.
    pub function: String,
    /// The peer's keys, for traces that encrypt or decrypt.
    pub session: Option<Rc<Session>>,
    /// The number by which the ports know the peer.
    pub connection: u64,
    /// The tenant that asked. Limits and fairness are per tenant.
    pub tenant: TenantId,
    /// The class of its jobs.
    pub class: Class,
    /// The time on the runtime's clock by which all of it should be done. It is soft, as are the deadlines of steps.
    pub deadline: Option<Nanos>,
}

impl TraceInput {
    /// A latency-critical request of the default tenant, without fields, function, keys or deadline.
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

    /// Sets this field.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: u32) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    /// Sets these keys.
    #[must_use]
    pub fn session(mut self, session: &Rc<Session>) -> Self {
        self.session = Some(Rc::clone(session));
        self
    }

    /// Sets the function that is called.
    #[must_use]
    pub fn function(mut self, name: impl Into<String>) -> Self {
        self.function = name.into();
        self
    }
}

/// Keys shared with a peer, one a direction, and the count of what was encrypted: no nonce is used twice. How they are
/// agreed on, and whether a message was seen before, is not its business.
#[derive(Debug)]
pub struct Session {
    seals: Key,
    opens: Key,
    sealed: Cell<u64>,
}

impl Session {
    /// Creates a session with the key that this side encrypts by and the one that the peer does. They must differ,
    /// because both sides count their nonces from zero.
    ///
    /// # Panics
    /// If they are the same.
    pub fn new(seals: &[u8; KEY_BYTES], opens: &[u8; KEY_BYTES]) -> Rc<Self> {
        assert!(
            seals != opens,
            "two sides that count nonces under one key give both messages away"
        );
        let (seals, opens) = (Key::new(seals), Key::new(opens));
        Rc::new(Self { seals, opens, sealed: Cell::new(0) })
    }

    /// The key to encrypt by and a nonce that it was never used with; none when all were.
    pub fn seal(&self) -> Option<(Key, Nonce)> {
        let count = self.sealed.get();
        self.sealed.set(count.checked_add(1)?);
        let mut nonce = [0; NONCE_BYTES];
        nonce[NONCE_BYTES - size_of::<u64>()..].copy_from_slice(&count.to_be_bytes());
        Some((self.seals.clone(), Nonce(nonce)))
    }

    /// The key to decrypt by.
    pub fn open(&self) -> Key {
        self.opens.clone()
    }
}

/// The result of a trace.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The payload as the last step left it.
    pub payload: Bytes,
    /// The format of the payload.
    pub format: Format,
    /// The function that a received RPC calls, else the input's.
    pub function: String,
    /// The core that `load-balance` picked.
    pub core: Option<usize>,
    /// The last checksum.
    pub checksum: Option<u64>,
    /// Ops that ran, those of other arms included.
    pub steps: u32,
    /// The ops that a device did not do although it was asked to, or for which none had room.
    pub fallbacks: u32,
    /// The time from the start to the end.
    pub total: Nanos,
}
