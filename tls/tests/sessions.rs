//! Sessions of both ends over a wire in memory, which accepts and delivers few bytes at a time, and credentials.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tls::{
    Application, Client, ClientAuth, ClientOptions, HandshakeFailure, Server, ServerOptions,
    Session, Version, Wire, suite_names,
};

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let issuer = issuer.expect("a certificate");
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).expect("it is written");
        };
        write("ca.pem", issuer.pem());
        for name in ["one", "two"] {
            let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().expect("a key");
            write(&format!("{name}.pem"), params.signed_by(&key, &issuer).expect("signed").pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self) -> ServerOptions {
        ServerOptions {
            cert_file: self.path("one.pem"),
            key_file: Some(self.path("one.key")),
            ca_file: Some(self.path("ca.pem")),
            client_auth: ClientAuth::Require,
            min_version: Version::Tls12,
            ciphers: Vec::new(),
        }
    }

    fn client(&self) -> Client {
        Client::load(ClientOptions {
            ca_file: self.path("ca.pem"),
            cert_file: Some(self.path("two.pem")),
            key_file: Some(self.path("two.key")),
            server_name: None,
        })
        .expect("credentials")
    }
}

/// One end of a wire. A call moves at most `step` bytes, and at most `room` bytes are under way.
struct End<'w> {
    out: &'w RefCell<VecDeque<u8>>,
    into: &'w RefCell<VecDeque<u8>>,
    step: usize,
    room: usize,
}

impl Wire for End<'_> {
    fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.into.borrow_mut();
        let count = space.len().min(self.step).min(bytes.len());
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        bytes.drain(..count).zip(space).for_each(|(byte, place)| *place = byte);
        Ok(count)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut bytes = self.out.borrow_mut();
        let count = self.step.min(self.room.saturating_sub(bytes.len()));
        let sent = slices.iter().flat_map(|slice| slice.iter().copied()).take(count);
        let before = bytes.len();
        bytes.extend(sent);
        match bytes.len() - before {
            0 => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }
}

fn or_wait<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

fn shake(server: &mut Session, client: &mut Session, at_server: &End<'_>, at_client: &End<'_>) {
    while server.is_handshaking() || client.is_handshaking() {
        if or_wait(client.handshake(at_client)) == Some(true) {
            // The server's handshake ends with tickets, which the client reads as it reads bytes.
            let _ = or_wait(client.read(&mut [0; 16], at_client));
        }
        let _ = or_wait(server.handshake(at_server));
    }
}

#[test]
fn every_byte_arrives_over_any_wire() {
    let files = Files::new();
    let (server, client) = (Server::load(files.options()).expect("good"), files.client());
    for (step, room) in [(1, 7), (100, 5_000), (4_096, 1 << 14), (1 << 20, 1 << 20)] {
        let (up, down) = (RefCell::default(), RefCell::default());
        let at_client = End { out: &up, into: &down, step, room };
        let at_server = End { out: &down, into: &up, step, room };
        let mut ours = Session::accept(&server, Application::Plain).expect("a session");
        let mut theirs = client.session("localhost", Application::Plain).expect("a session");
        shake(&mut ours, &mut theirs, &at_server, &at_client);
        let bytes: Vec<u8> = (0..200_000u32).map(|number| (number / 7) as u8).collect();
        let (mut written, mut read) = (0, Vec::new());
        // Small spaces leave decrypted bytes in the session, beside further records on the wire.
        let mut spaces = [3_000, 2, 100, 20_000, 1].into_iter().cycle();
        let mut space = vec![0; 20_000];
        while read.len() < bytes.len() {
            let rest = &bytes[written..];
            let (first, second) = rest.split_at(rest.len().min(10));
            if !rest.is_empty() {
                let slices = [IoSlice::new(first), IoSlice::new(second)];
                written += or_wait(ours.write(&slices, &at_server)).unwrap_or(0);
            }
            let space = &mut space[..spaces.next().unwrap_or(1)];
            if let Some(count) = or_wait(theirs.read(space, &at_client)) {
                read.extend_from_slice(&space[..count]);
            }
        }
        assert!(read == bytes, "steps of {step}");
        ours.close(&at_server);
        let end = loop {
            let _ = or_wait(ours.flush(&at_server));
            if let Some(count) = or_wait(theirs.read(&mut space, &at_client)) {
                break count;
            }
        };
        assert_eq!(end, 0);
    }
}

#[test]
fn a_session_knows_who_its_client_is() {
    let files = Files::new();
    let (server, client) = (Server::load(files.options()).expect("good"), files.client());
    let (up, down) = (RefCell::default(), RefCell::default());
    let at_client = End { out: &up, into: &down, step: 1 << 16, room: 1 << 20 };
    let at_server = End { out: &down, into: &up, step: 1 << 16, room: 1 << 20 };
    let mut ours = Session::accept(&server, Application::Http2).expect("a session");
    let mut theirs = client.session("localhost", Application::Http2).expect("a session");
    shake(&mut ours, &mut theirs, &at_server, &at_client);
    let identity = ours.identity().expect("a certificate");
    assert_eq!(
        (identity.subject.as_str(), &identity.names[..]),
        ("CN=two", &["DNS:localhost".to_owned()][..])
    );
}

#[test]
fn bytes_that_are_no_tls_have_their_own_reason() {
    let files = Files::new();
    let server = Server::load(files.options()).expect("good");
    for (bytes, reason) in [
        (&b"get k\r\n"[..], HandshakeFailure::Plain),
        (&[22, 3, 1, 0, 4, 9, 9, 9, 9][..], HandshakeFailure::Other),
    ] {
        let (up, down) = (RefCell::new(bytes.iter().copied().collect()), RefCell::default());
        let at_server = End { out: &down, into: &up, step: 1 << 16, room: 1 << 20 };
        let mut session = Session::accept(&server, Application::Plain).expect("a session");
        let error = session.handshake(&at_server).expect_err("no handshake");
        assert_eq!(HandshakeFailure::from_error(&error), reason, "{error}");
    }
}

#[test]
fn a_pair_that_does_not_match_leaves_the_old_one() {
    let files = Files::new();
    let server = Server::load(files.options()).expect("good");
    let expires = server.expires_unix_s();
    assert!(!server.has_changed());
    std::fs::copy(files.path("two.pem"), files.path("one.pem")).expect("copied");
    assert!(server.has_changed());
    let problem = server.reload().expect_err("another key").to_string();
    assert!(problem.contains("one.pem with its key"), "{problem}");
    assert!(!server.has_changed() && server.expires_unix_s() == expires);
    std::fs::write(files.path("one.pem"), "half").expect("written");
    assert!(server.has_changed() && server.reload().is_err());
    std::fs::copy(files.path("two.pem"), files.path("one.pem")).expect("copied");
    std::fs::copy(files.path("two.key"), files.path("one.key")).expect("copied");
    server.reload().expect("they match");
}

#[test]
fn suites_have_openssls_names() {
    let names: Vec<String> = suite_names().collect();
    for name in
        ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_AES_128_GCM_SHA256"]
    {
        assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
    }
    let files = Files::new();
    let ciphers = |name: &str| {
        Server::load(ServerOptions { ciphers: vec![name.to_owned()], ..files.options() }).err()
    };
    assert!(ciphers("ECDHE-RSA-AES128-GCM-SHA256").is_none());
    let problem = ciphers("RC4-MD5").expect("unsafe").to_string();
    assert!(problem.contains("give any of") && problem.contains("RC4-MD5"), "{problem}");
}
