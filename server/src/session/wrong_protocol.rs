//! Chooses the protocol of a connection by its first byte, and refuses clients of a protocol that is not served. The
//! answer is in the protocol that the client speaks, because it could read no other. Each refusal is counted, and
//! logged once per client.

use protocol::binary::{self, Head, Status, reply};
use protocol::refusal;

use super::{Session, Speaks};
use crate::config::ProtocolName;
use crate::once;

impl Session {
    /// Chooses the protocol of a connection that begins with `input`. Refuses it if the protocol is not served.
    pub(super) fn choose_protocol(&mut self, input: &[u8]) {
        let is_packet = input.first() == Some(&binary::REQUEST_MAGIC);
        self.protocol = if is_packet { Speaks::Binary } else { Speaks::Text };
        let commands = &self.context.counters.commands;
        // Clients that log in as in memcached's text protocol can do so only there.
        let is_text_only = self.client.as_ref().is_some_and(|client| client.is_text_only());
        let served = match (is_text_only, self.is_near()) {
            (true, _) => ProtocolName::Ascii,
            // Clients that share memory speak packets, whatever those of sockets may speak.
            (false, true) => ProtocolName::Auto,
            (false, false) => self.context.config.server.protocol,
        };
        match (served, self.protocol) {
            (ProtocolName::Ascii, Speaks::Binary) => {
                commands.refused_binary.up();
                self.log_refusal("the client speaks the binary protocol, which is not served");
                let head = head_of(input);
                let text = "the binary protocol is not served here";
                reply::failed(self.out.text(), head, Status::UnknownCommand, text);
                self.closing = true;
            }
            (ProtocolName::Binary, Speaks::Text) => {
                commands.refused_ascii.up();
                self.log_refusal("the client speaks text, and only the binary protocol is served");
                self.out.text().extend_from_slice(refusal::BINARY_ONLY);
                self.closing = true;
            }
            _ => {}
        }
    }

    /// Counts and logs a packet without its first byte, after which the connection ends.
    pub(super) fn note_bad_magic(&self) {
        self.context.counters.commands.bad_magic.up();
        self.log_refusal("the client sent bytes that are not a packet of the binary protocol");
    }

    /// Counts and logs bytes that are no call of the Thrift service, after which the connection ends.
    pub(super) fn note_bad_frame(&self) {
        self.context.counters.commands.bad_magic.up();
        self.log_refusal(
            "the client sent bytes that are not a call of Thrift's binary protocol in a frame",
        );
    }

    fn log_refusal(&self, what: &'static str) {
        let peer = self.from.map(|from| from.ip());
        if once::is_first(peer, what) {
            let peer = peer.map_or("unix".to_owned(), |peer| peer.to_string());
            tracing::warn!(%peer, "{what}");
        }
    }
}

/// Returns what the answer to the first packet repeats, as far as the packet has arrived.
fn head_of(input: &[u8]) -> Head {
    let opaque = input.get(12..16).and_then(|bytes| bytes.first_chunk());
    Head {
        opcode: input.get(1).copied().unwrap_or(0),
        opaque: opaque.map_or(0, |bytes| u32::from_be_bytes(*bytes)),
        ..Head::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_repeats_what_has_arrived_of_a_packet() {
        let packet = [0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(head_of(&packet).opaque, 0x0102_0304);
        assert_eq!(head_of(&packet[..15]), Head { opcode: 0x0a, ..Head::default() });
        assert_eq!(head_of(&packet[..1]), Head::default());
    }
}
