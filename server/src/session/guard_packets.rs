//! What a session does before it serves a packet of a client whose rights are limited: the login of SASL PLAIN, the
//! check of rights, and the wait for its quota. `guard` does the same for lines.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::binary::{Command, HEADER_BYTES, Head, Packet, Refusal, Sasl, Status};

use super::Session;
use super::pipeline::Pending;
use super::reply_to::ReplyTo;
use crate::access::{Client, Denial, Rights};
use crate::errors::FailedCommand;

impl Session {
    /// Returns the refusal of a packet that the session may not serve.
    pub(super) async fn guard_packet<'p>(
        &mut self,
        packet: &Packet<'p>,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Option<Refusal<'p>> {
        let client = Rc::clone(self.client.as_ref()?);
        let Packet { head, command } = packet;
        if client.must_log_in() {
            return match command {
                Command::Sasl(_) | Command::Version => None,
                _ => {
                    client.deny_unauthenticated(Traits::new(command).name);
                    Some(Refusal::closing(*head, Status::AuthFailure))
                }
            };
        }
        let key = command.key();
        let keys = |visit: &mut dyn FnMut(&[u8]) -> bool| key.is_none_or(visit);
        let value_bytes = command.value_bytes().unwrap_or(0);
        let traits = Traits::new(command);
        let checked = client.check(traits.name, traits.needed, keys);
        // A refused packet counts too, because it costs as much as another.
        client.spend_bytes(HEADER_BYTES + key.map_or(0, <[u8]>::len) + value_bytes);
        let status = self.status(&client, checked, pending).await?;
        Some(Refusal::skipping(*head, status, value_bytes as u64))
    }

    /// Returns the refusal of a get of `keys`, of which not one may be outside of the client's rights.
    pub(super) async fn guard_keys<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        bytes: usize,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Option<Refusal<'static>> {
        let client = Rc::clone(self.client.as_ref()?);
        if client.must_log_in() {
            client.deny_unauthenticated("get");
            return Some(Refusal::closing(Head::default(), Status::AuthFailure));
        }
        let visit = |visit: &mut dyn FnMut(&[u8]) -> bool| keys.clone().all(visit);
        let checked = client.check("get", Rights::READ, visit);
        client.spend_bytes(bytes);
        let status = self.status(&client, checked, pending).await?;
        Some(Refusal::skipping(Head::default(), status, 0))
    }

    /// Waits for the client's quota. Returns the status of a refused request.
    async fn status(
        &mut self,
        client: &Client,
        checked: Result<(), Denial>,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Option<Status> {
        match (self.has_quota(client, pending).await, checked) {
            (true, Ok(())) => None,
            (false, _) => Some(Status::OverQuota),
            (true, Err(_)) => Some(Status::Denied),
        }
    }

    /// Returns the refusal of a malformed packet, or another one if this one would drop an item that the client may not
    /// change.
    pub(super) async fn guard_refusal<'p>(
        &mut self,
        refusal: Refusal<'p>,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Refusal<'p> {
        let Some(client) = self.client.clone() else { return refusal };
        if client.must_log_in() && refusal.status != Status::BadMagic {
            client.deny_unauthenticated("unknown");
            return Refusal::closing(refusal.head, Status::AuthFailure);
        }
        client.spend_bytes(HEADER_BYTES + refusal.swallow_bytes as usize);
        if !self.has_quota(&client, pending).await {
            return Refusal { status: Status::OverQuota, unlink: None, ..refusal };
        }
        let Some(key) = refusal.unlink else { return refusal };
        let keys = |visit: &mut dyn FnMut(&[u8]) -> bool| visit(key);
        match client.check("set", Rights::WRITE, keys) {
            Ok(()) => refusal,
            Err(_) => Refusal { status: Status::Denied, unlink: None, ..refusal },
        }
    }

    /// Answers a command for authentication, with the client's `message`. Without rules about users there are no such
    /// commands, as in a memcached without SASL.
    pub(super) async fn authenticate(&mut self, to: ReplyTo, sasl: &Sasl<'_>, message: &[u8]) {
        let Some(client) = self.client.clone().filter(|client| !client.is_text_only()) else {
            return to.refused(self.out.text(), Status::UnknownCommand);
        };
        let is_right = match sasl {
            Sasl::ListMechanisms => return to.text(self.out.text(), "PLAIN"),
            Sasl::Begin { mechanism: b"PLAIN", .. } => match credentials(message) {
                Some((user, password)) => client.authenticate(user, password).await,
                None => false,
            },
            // PLAIN has only one message.
            Sasl::Begin { .. } | Sasl::Step { .. } => false,
        };
        if is_right {
            to.text(self.out.text(), "Authenticated");
        } else {
            to.refused(self.out.text(), Status::AuthFailure);
        }
    }

    /// Logs an administrative command.
    #[cold]
    pub(super) fn audit_packet(&self, command: &Command<'_>) {
        let traits = Traits::new(command);
        if !traits.needed.is_administrative() {
            return;
        }
        if let Some(client) = &self.client {
            return client.log_allowed(traits.name, b"");
        }
        let origin = self.origin();
        self.context.audit_anonymous(&origin, traits.name);
    }
}

/// Returns the user and the password of a message of PLAIN (RFC 4616): the identity to act as, the user and the
/// password, with zero bytes in between. To act as somebody else is refused.
fn credentials(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|byte| *byte == 0);
    let (acting, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_valid =
        parts.next().is_none() && !user.is_empty() && (acting.is_empty() || acting == user);
    is_valid.then_some((user, password))
}

/// What the session knows of a packet's command besides how to serve it.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    /// The name for the log.
    pub(super) name: &'static str,
    /// The rights that the command needs.
    pub(super) needed: Rights,
    /// The command whose errors are counted.
    pub(super) failed: FailedCommand,
}

impl Traits {
    pub(super) fn new(command: &Command<'_>) -> Self {
        use FailedCommand as Failed;
        // A gat changes the item, and the answer to a touch or to an increment says what is stored.
        let both = Rights::READ.and(Rights::WRITE);
        let (name, needed, failed) = match command {
            Command::Get { touch_exptime_s: None, .. } => ("get", Rights::READ, Failed::Get),
            Command::Get { .. } => ("gat", both, Failed::Gat),
            Command::Touch { .. } => ("touch", Rights::WRITE, Failed::Touch),
            Command::Store(store) => (store.verb.name(), Rights::WRITE, Failed::Set),
            Command::Delete { .. } => ("delete", Rights::DELETE, Failed::Delete),
            Command::Arithmetic(_) => ("incr or decr", both, Failed::Incr),
            Command::Flush { .. } => ("flush_all", Rights::FLUSH, Failed::FlushAll),
            Command::Stat { page } => ("stats", needed_for_page(page), Failed::Other),
            Command::Noop => ("noop", Rights::NONE, Failed::Other),
            Command::Version => ("version", Rights::NONE, Failed::Other),
            Command::Quit => ("quit", Rights::NONE, Failed::Other),
            Command::Sasl(_) => ("sasl", Rights::NONE, Failed::Other),
        };
        Self { name, needed, failed }
    }
}

/// Returns the rights that a page of statistics needs.
fn needed_for_page(page: &[u8]) -> Rights {
    if page.starts_with(b"reset") {
        Rights::ADMIN
    } else if page.starts_with(b"cachedump") || page == b"dictionaries" {
        Rights::DUMP
    } else {
        Rights::STATS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_plain_have_three_parts() {
        assert_eq!(credentials(b"\0web\0pass"), Some((&b"web"[..], &b"pass"[..])));
        assert_eq!(credentials(b"web\0web\0"), Some((&b"web"[..], &b""[..])));
        for message in
            [&b""[..], b"web", b"web\0pass", b"\0web\0pa\0ss", b"\0\0pass", b"root\0web\0pass"]
        {
            assert_eq!(credentials(message), None, "{}", message.escape_ascii());
        }
    }
}
