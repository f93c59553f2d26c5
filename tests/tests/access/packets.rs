//! The rights of clients in the binary protocol.

use std::io::{Read, Write};
use std::net::TcpStream;

use rebate_tests::TIMEOUT;

use super::Guarded;
use super::table::{ADMIN, DELETE, DUMP, FLUSH, Protocol, READ, RULES, STATS, WRITE};

/// A packet to try: its name in the table, opcode, length of the extras, and value.
const PACKETS: [(&str, u8, usize, &str, u16); 24] = [
    ("get KEY", 0x00, 0, "", READ),
    ("getq KEY", 0x09, 0, "", READ),
    ("getk KEY", 0x0c, 0, "", READ),
    ("getkq KEY", 0x0d, 0, "", READ),
    ("gat KEY", 0x1d, 4, "", READ | WRITE),
    ("gatk KEY", 0x23, 4, "", READ | WRITE),
    ("touch KEY", 0x1c, 4, "", WRITE),
    ("set KEY", 0x01, 8, "1", WRITE),
    ("setq KEY", 0x11, 8, "1", WRITE),
    ("add KEY", 0x02, 8, "1", WRITE),
    ("replace KEY", 0x03, 8, "1", WRITE),
    ("append KEY", 0x0e, 0, "1", WRITE),
    ("prepend KEY", 0x0f, 0, "1", WRITE),
    ("increment KEY", 0x05, 20, "", READ | WRITE),
    ("decrementq KEY", 0x16, 20, "", READ | WRITE),
    ("delete KEY", 0x04, 0, "", DELETE),
    ("deleteq KEY", 0x14, 0, "", DELETE),
    ("flush", 0x08, 0, "", FLUSH),
    ("stat", 0x10, 0, "", STATS),
    ("stat reset", 0x10, 0, "", ADMIN),
    ("stat resetX", 0x10, 0, "", ADMIN),
    ("stat dictionaries", 0x10, 0, "", DUMP),
    ("stat cachedump 1 0", 0x10, 0, "", DUMP),
    ("noop", 0x0a, 0, "", 0),
];

const AUTH_FAILURE: u16 = 0x20;
const DENIED: u16 = 0x24;
const UNKNOWN: u16 = 0x81;

pub(super) struct BinaryProtocol;

impl Protocol for BinaryProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        PACKETS.iter().map(|(name, .., rights)| (*name, *rights)).collect()
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        let mut client = Packets::connect_as(server, user);
        if !user.is_empty() && server.logs_in() {
            assert_eq!(client.log_in(user, &format!("{user}-password")), 0, "{user}");
        }
        let found = PACKETS.iter().find(|(name, ..)| *name == command);
        let (name, opcode, extras, value, _) = found.expect("a packet of the table");
        let page = name.strip_prefix("stat ").unwrap_or_default();
        let key = if page.is_empty() { key } else { page };
        let mut bytes = packet(*opcode, *extras, key, value.as_bytes());
        bytes.extend(packet(0x0a, 0, "", b""));
        client.0.write_all(&bytes).expect("the connection is open");
        let (_, status, _) = client.answer().expect("an answer");
        ![AUTH_FAILURE, DENIED].contains(&status)
    }
}

/// A connection of the binary protocol.
struct Packets(TcpStream);

impl Packets {
    fn connect(server: &Guarded) -> Self {
        Self::connect_as(server, "")
    }

    fn connect_as(server: &Guarded, user: &str) -> Self {
        let stream = TcpStream::connect(server.address_of(user)).expect("the server accepts");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Self(stream)
    }

    /// Returns the opcode, the status and the body of the next answer, or nothing at the end of the connection.
    fn answer(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        let mut header = [0; 24];
        self.0.read_exact(&mut header).ok()?;
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut bytes = vec![0; body as usize];
        self.0.read_exact(&mut bytes).ok()?;
        Some((header[1], u16::from_be_bytes([header[6], header[7]]), bytes))
    }

    fn ask(&mut self, bytes: &[u8]) -> (u16, Vec<u8>) {
        self.0.write_all(bytes).expect("the connection is open");
        let (_, status, body) = self.answer().expect("an answer");
        (status, body)
    }

    /// Logs in with SASL PLAIN and returns the status.
    fn log_in(&mut self, user: &str, password: &str) -> u16 {
        let message = format!("\0{user}\0{password}");
        self.ask(&packet(0x21, 0, "PLAIN", message.as_bytes())).0
    }
}

/// Builds a request with extras of zeros.
fn packet(opcode: u8, extras: usize, key: &str, value: &[u8]) -> Vec<u8> {
    let body = extras + key.len() + value.len();
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras as u8, 0, 0, 0]);
    bytes.extend((body as u32).to_be_bytes());
    bytes.extend([0; 12]);
    bytes.extend(vec![0; extras]);
    bytes.extend(key.as_bytes());
    bytes.extend(value);
    bytes
}

#[test]
fn a_packet_client_logs_in_with_plain_only() {
    let server = Guarded::start(RULES);
    let mut client = Packets::connect(&server);
    assert_eq!(client.ask(&packet(0x20, 0, "", b"")), (0, b"PLAIN".to_vec()));
    assert_eq!(client.log_in("web", "wrong"), AUTH_FAILURE);
    let other = packet(0x21, 0, "CRAM-MD5", b"\0web\0web-password");
    assert_eq!(client.ask(&other).0, AUTH_FAILURE);
    let acting = packet(0x21, 0, "PLAIN", b"admin\0web\0web-password");
    assert_eq!(client.ask(&acting).0, AUTH_FAILURE);
    assert_eq!(client.ask(&packet(0x0b, 0, "", b"")).0, 0, "version needs no login");
    assert_eq!(client.log_in("web", "web-password"), 0);
    assert_eq!(client.ask(&packet(0x01, 8, "web:a", b"1")).0, 0);
    assert_eq!(client.ask(&packet(0x01, 8, "a", b"1")).0, DENIED);
    assert_eq!(client.ask(&packet(0x00, 0, "web:a", b"")).0, 0, "the next packet is readable");
}

#[test]
fn a_packet_of_nobody_ends_the_connection() {
    let server = Guarded::start(RULES);
    let mut client = Packets::connect(&server);
    let mut bytes = packet(0x01, 8, "a", b"1");
    bytes.extend(packet(0x0a, 0, "", b""));
    client.0.write_all(&bytes).expect("the connection is open");
    assert_eq!(
        client.answer().map(|(opcode, status, _)| (opcode, status)),
        Some((1, AUTH_FAILURE))
    );
    assert_eq!(client.answer(), None);
}

#[test]
fn a_value_too_large_in_a_packet_drops_no_item_of_others() {
    let server = Guarded::start(RULES);
    assert_eq!(server.text("admin").ask(b"set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    let mut client = Packets::connect(&server);
    assert_eq!(client.log_in("web", "web-password"), 0);
    let large = packet(0x01, 8, "a", &vec![b'x'; 2_000_000]);
    assert_eq!(client.ask(&large).0, DENIED);
    assert_eq!(server.text("admin").ask(b"get a\r\n"), "VALUE a 0 1\r\n");
}

#[test]
fn without_rules_there_is_no_sasl() {
    let server = rebate_tests::Server::rebate(&["serve", "--listen", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(server.addr()).expect("the server accepts");
    stream.write_all(&packet(0x20, 0, "", b"")).expect("the connection is open");
    assert_eq!(Packets(stream).answer().map(|(_, status, _)| status), Some(UNKNOWN));
}
