//! One TLS connection without a socket: its caller moves bytes to and from the wire. A session that waits holds no
//! buffer of its own but the first 4 KiB of rustls. Bytes from the wire arrive in one buffer per thread.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::{Connection, HandshakeKind, ServerConnection};

use crate::error::{NotTls, invalid};
use crate::{Application, Identity, Server, identity};

/// The bytes under a session, without waiting.
pub trait Wire {
    /// Receives available bytes. Returns `WouldBlock` if there are none, and 0 at the end.
    ///
    /// # Errors
    /// Returns the system's error.
    fn receive(&self, space: &mut [u8]) -> io::Result<usize>;

    /// Sends what the wire accepts now. Returns `WouldBlock` if that is nothing.
    ///
    /// # Errors
    /// Returns the system's error.
    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// A TLS session. Its functions return `WouldBlock` if they must wait for the wire.
pub struct Session {
    tls: Connection,
    /// The number of bytes that the caller wrote, that are encrypted and not yet reported as written.
    owed: usize,
    /// The encrypted bytes that are not sent yet, and the part of them that is counted in [`HELD_BYTES`].
    unsent: usize,
    counted: usize,
    /// True if there may be decrypted bytes that were not read.
    may_have_more: bool,
    /// True if the buffer of rustls may have grown since it was last reduced.
    has_grown: bool,
    has_begun: bool,
    /// True after the handshake.
    is_up: bool,
    identity: Option<Box<Identity>>,
}

impl Session {
    pub(crate) fn new(mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(SEND_BYTES_MAX));
        Self {
            tls,
            owed: 0,
            unsent: 0,
            counted: 0,
            may_have_more: false,
            has_grown: false,
            has_begun: false,
            is_up: false,
            identity: None,
        }
    }

    /// Begins a session with a client that has connected.
    ///
    /// # Errors
    /// Returns an error of rustls, which no option of [`crate::ServerOptions`] causes.
    pub fn accept(server: &Server, application: Application) -> io::Result<Self> {
        let connection = ServerConnection::new(server.config(application)).map_err(invalid)?;
        Ok(Self::new(Connection::from(connection)))
    }

    /// Continues the handshake. Returns whether it is complete; if not, the caller must wait for bytes of the peer.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the wire accepts no more bytes, and any error that ends the connection.
    /// [`crate::HandshakeFailure::from_error`] has its reason.
    pub fn handshake(&mut self, wire: &impl Wire) -> io::Result<bool> {
        loop {
            self.flush(wire)?;
            if !self.tls.is_handshaking() {
                self.identity = self.peer().map(Box::new);
                // The peer may have sent bytes right after its part of the handshake.
                self.may_have_more = true;
                self.is_up = true;
                return Ok(true);
            }
            // Bytes after the handshake stay in rustls until they are read, so they are few.
            match self.receive(&mut [], RECEIVE_BYTES_MIN, wire) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        !self.is_up
    }

    fn peer(&self) -> Option<Identity> {
        Identity::from_certificate(self.tls.peer_certificates()?.first()?)
    }

    /// Returns the identity of the peer, if it has shown a certificate.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Returns the time at which the first certificate of the peer's chain expires (s since the Unix epoch).
    pub(crate) fn peer_expires_unix_s(&self) -> Option<i64> {
        identity::expires_unix_s(self.tls.peer_certificates()?)
    }

    /// Returns whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns a key that only both ends of this session have (RFC 5705 and RFC 8446, section 7.5). Each label has its
    /// own key.
    ///
    /// # Errors
    /// Returns an error before the end of the handshake.
    pub fn export_key(&self, label: &str) -> io::Result<[u8; EXPORTED_KEY_BYTES]> {
        let key = [0; EXPORTED_KEY_BYTES];
        self.tls.export_keying_material(key, label.as_bytes(), None).map_err(invalid)
    }

    /// Returns whether decrypted bytes may be waiting, so that the next read need not wait for the wire.
    pub fn may_have_more(&self) -> bool {
        self.may_have_more
    }

    /// Reads decrypted bytes. Returns 0 at the end of the connection.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there are none, and any error that ends the connection.
    pub fn read(&mut self, space: &mut [u8], wire: &impl Wire) -> io::Result<usize> {
        if space.is_empty() {
            return Ok(0);
        }
        if std::mem::take(&mut self.may_have_more)
            && let Some(bytes) = self.take(space)?
        {
            self.may_have_more = bytes == space.len();
            return Ok(bytes);
        }
        loop {
            let bytes_max = space.len().max(RECEIVE_BYTES_MIN);
            match self.receive(space, bytes_max, wire) {
                Ok(Some(0)) => {}
                Ok(Some(bytes)) => {
                    self.may_have_more |= bytes == space.len();
                    return Ok(bytes);
                }
                Ok(None) => return Ok(0),
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.release();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Takes decrypted bytes. Returns `Some(0)` at the end of the connection, and `None` if there are no bytes.
    fn take(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        match self.tls.reader().read(space) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // memcached's clients close their connections without a word. The commands have lengths of their own, so
            // a cut connection is not taken for a complete request.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    /// Receives at most `bytes_max` bytes and decrypts them, into `space` as far as they fit. Returns the number of
    /// bytes there, or `None` at the end of the connection.
    fn receive(
        &mut self,
        space: &mut [u8],
        bytes_max: usize,
        wire: &impl Wire,
    ) -> io::Result<Option<usize>> {
        RECEIVED.with_borrow_mut(|buffer| {
            buffer.resize(RECEIVE_BYTES_MAX, 0);
            let bytes = wire.receive(&mut buffer[..bytes_max.min(RECEIVE_BYTES_MAX)])?;
            let received = &buffer[..bytes];
            if bytes > 0 && !std::mem::replace(&mut self.has_begun, true) {
                // The first byte of every TLS connection says that it is a handshake, or refuses one.
                let is_tls = received[0] == HANDSHAKE || received[0] == ALERT;
                if !is_tls && self.tls.is_handshaking() {
                    return Err(invalid(NotTls));
                }
            }
            self.decrypt(received, space, wire)
        })
    }

    fn decrypt(
        &mut self,
        mut received: &[u8],
        space: &mut [u8],
        wire: &impl Wire,
    ) -> io::Result<Option<usize>> {
        if received.is_empty() {
            let _end = self.tls.read_tls(&mut received)?;
            return Ok(None);
        }
        self.has_grown |= received.len() > BUFFER_BYTES_MIN;
        let mut filled = 0;
        let mut has_ended = false;
        while !received.is_empty() && !has_ended {
            // Of a closed connection, rustls reads nothing more.
            has_ended = self.tls.read_tls(&mut received)? == 0;
            if let Err(error) = self.tls.process_new_packets() {
                // The peer learns the reason if the wire accepts it at once.
                let _ = self.flush(wire);
                return Err(invalid(error));
            }
            while filled < space.len() {
                match self.take(&mut space[filled..])? {
                    Some(0) => {
                        has_ended = true;
                        break;
                    }
                    Some(bytes) => filled += bytes,
                    None => break,
                }
            }
        }
        if self.tls.wants_write() && !self.tls.is_handshaking() {
            // Replies to messages of the protocol, such as new keys. What must wait goes with the next write.
            match self.flush(wire) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        if has_ended && filled == 0 {
            return Ok(None);
        }
        // The end is found again by the next read.
        self.may_have_more |= has_ended;
        Ok(Some(filled))
    }

    /// Reduces the buffer of rustls to its smallest size.
    fn release(&mut self) {
        if std::mem::take(&mut self.has_grown) {
            let _ = self.tls.read_tls(&mut Nothing);
        }
    }

    /// Writes bytes: encrypts them and sends them. It reports bytes as written only once all of them are sent. Until
    /// then it returns `WouldBlock`, and the next call must begin with the same bytes.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the wire accepts no more bytes, and any error that ends the connection.
    pub fn write(&mut self, slices: &[IoSlice<'_>], wire: &impl Wire) -> io::Result<usize> {
        self.flush(wire)?;
        if self.owed > 0 {
            return Ok(std::mem::take(&mut self.owed));
        }
        self.owed = self.encrypt(slices)?;
        self.flush(wire)?;
        Ok(std::mem::take(&mut self.owed))
    }

    /// Takes bytes to write and encrypts them. What the wire does not accept at once is sent by [`Self::flush`].
    ///
    /// # Errors
    /// Returns `WouldBlock` if earlier bytes are not sent yet, and any error that ends the connection.
    pub fn push(&mut self, slices: &[IoSlice<'_>], wire: &impl Wire) -> io::Result<usize> {
        self.flush(wire)?;
        let bytes = self.encrypt(slices)?;
        match self.flush(wire) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Sends all encrypted bytes.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the wire does not accept all of them, and any error that ends the connection.
    pub fn flush(&mut self, wire: &impl Wire) -> io::Result<()> {
        let flushed = self.send(wire);
        self.count();
        flushed
    }

    fn send(&mut self, wire: &impl Wire) -> io::Result<()> {
        while self.tls.wants_write() {
            let sent = self.tls.write_tls(&mut Sink(wire))?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unsent = self.unsent.saturating_sub(sent);
        }
        self.unsent = 0;
        Ok(())
    }

    /// Encrypts as many bytes as may be held. While many bytes wait in all sessions, that is one record.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_much = HELD_BYTES.load(Ordering::Relaxed) > HELD_BYTES_MAX;
        let limit = if is_much { RECORD_BYTES_MAX } else { SEND_BYTES_MAX };
        self.tls.set_buffer_limit(Some(limit));
        let bytes = self.tls.writer().write_vectored(slices)?;
        self.unsent += bytes + bytes.div_ceil(RECORD_BYTES_MAX) * RECORD_OVERHEAD_BYTES;
        Ok(bytes)
    }

    /// Counts what the wire did not accept. Nothing is counted if it accepts everything at once.
    fn count(&mut self) {
        if self.unsent != self.counted {
            HELD_BYTES.fetch_add(self.unsent.wrapping_sub(self.counted), Ordering::Relaxed);
            self.counted = self.unsent;
        }
    }

    /// Tells the peer that no more bytes follow, if the wire accepts that at once.
    pub fn close(&mut self, wire: &impl Wire) {
        self.tls.send_close_notify();
        let _ = self.flush(wire);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unsent = 0;
        self.count();
    }
}

/// The encrypted bytes of all sessions that their peers have not taken.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the encrypted bytes of all sessions of this process that their peers have not taken yet.
pub fn held_bytes() -> usize {
    HELD_BYTES.load(Ordering::Relaxed)
}

thread_local! {
    /// Bytes from the wire between their arrival and their decryption. It is empty between two calls.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Sends what rustls writes.
struct Sink<'w, W>(&'w W);

impl<W: Wire> Write for Sink<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A source that never has bytes.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The length of a key that [`Session::export_key`] returns: that of a key of AES-256.
pub const EXPORTED_KEY_BYTES: usize = 32;

/// The content types of a record with a handshake message, and of one with an alert (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// The most bytes that are received at once: the buffer of a thread.
const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// The bytes that are received at once even into a smaller space. rustls keeps at most 16 KiB of decrypted bytes and
/// has a buffer of 18,437 bytes. Beside the longest incomplete record, of 16,644 bytes, this many bytes fit into it in
/// one call. More bytes are received only if they fit into the caller's space, so rustls never has to refuse any.
const RECEIVE_BYTES_MIN: usize = 1_536;

/// The smallest buffer of rustls for bytes from the wire.
const BUFFER_BYTES_MIN: usize = 4 << 10;

/// The most bytes that are encrypted before they are sent: four of the longest records, in one call of the system.
const SEND_BYTES_MAX: usize = 64 << 10;

/// The longest record (bytes), and what its header and its tag add at most.
const RECORD_BYTES_MAX: usize = 16 << 10;
const RECORD_OVERHEAD_BYTES: usize = 32;

/// The encrypted bytes that all sessions may hold before each of them gets room for one record only. Together with
/// [`CONNECTION_BYTES_MAX`] this bounds the memory of TLS.
pub const HELD_BYTES_MAX: usize = 4 << 20;

/// The most memory of one session (bytes): the state and the buffers of rustls for a partial record in each direction.
pub const CONNECTION_BYTES_MAX: usize = 44 << 10;
