//! Messages on a socket: a length of four bytes, most significant first, then an encrypted payload. What traces send
//! goes through [`Wire`], their tcp port; what comes in goes to whoever reads the connection. Keys are agreed on when a
//! connection begins, so that no two connections share one; who the other side is follows from the shared secret alone.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use runtime::trace::{About, Answer, PortError, Session, Tcp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// The tcp port, and the connections that it sends to. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Wire(Rc<RefCell<Lines>>);

#[derive(Default)]
struct Lines {
    last: u64,
    open: HashMap<u64, Line>,
}

struct Line {
    out: mpsc::Sender<Bytes>,
    /// Of what was sent, in the order in which the peer answers.
    answers: VecDeque<Answer>,
}

/// Which side of a connection one is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A connection: what the port knows it by, its keys, and what comes in.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) session: Rc<Session>,
    incoming: OwnedReadHalf,
    wire: Wire,
}

impl Wire {
    /// Agrees on keys and lets traces send to the peer from now on.
    pub(crate) async fn open(
        &self,
        mut stream: TcpStream,
        side: Side,
        secret: &[u8],
    ) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let session = agree(&mut stream, side, secret).await?;
        let (incoming, outgoing) = stream.into_split();
        let (out, queue) = mpsc::channel(OUT_MAX);
        tokio::task::spawn_local(write(outgoing, queue));
        let mut lines = self.0.borrow_mut();
        lines.last += 1;
        let number = lines.last;
        lines.open.insert(number, Line { out, answers: VecDeque::new() });
        Ok(Connection { number, session, incoming, wire: self.clone() })
    }

    /// The answer to what was sent first of all that is not answered.
    pub(crate) fn answer(&self, connection: u64, payload: Bytes) {
        let line_answer = |lines: &mut Lines| lines.open.get_mut(&connection)?.answers.pop_front();
        let answer = line_answer(&mut self.0.borrow_mut());
        if let Some(answer) = answer {
            answer.give(payload, Vec::new());
        }
    }
}

impl Tcp for Wire {
    fn send(
        &mut self,
        about: &About<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError> {
        let mut lines = self.0.borrow_mut();
        let line = lines.open.get_mut(&about.connection);
        let line = line.ok_or_else(|| PortError("the connection is closed".to_owned()))?;
        line.out.try_send(payload).map_err(|error| PortError(error.to_string()))?;
        line.answers.extend(answer);
        Ok(())
    }
}

impl Connection {
    /// The next message; none when the peer is done.
    pub(crate) async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        let bytes = match self.incoming.read_u32().await {
            Ok(bytes) => bytes as usize,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if bytes > MESSAGE_BYTES_MAX {
            let why = format!("a message of {bytes} bytes; at most {MESSAGE_BYTES_MAX} are taken");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut message = vec![0; bytes];
        self.incoming.read_exact(&mut message).await?;
        Ok(Some(message.into()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The answers that are missing are dropped: their traces learn that the peer is gone.
        let line = self.wire.0.borrow_mut().open.remove(&self.number);
        drop(line);
    }
}

async fn write(mut outgoing: OwnedWriteHalf, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(payload) = queue.recv().await {
        let length = u32::try_from(payload.len()).expect("payloads are bounded far below");
        let head = outgoing.write_u32(length).await;
        if head.is_err() || outgoing.write_all(&payload).await.is_err() {
            // The reader finds the connection gone.
            return;
        }
    }
}

/// Each side sends 32 random bytes; with the secret they give two keys, one a direction.
async fn agree(stream: &mut TcpStream, side: Side, secret: &[u8]) -> io::Result<Rc<Session>> {
    let mut own = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut own).map_err(|_| io::Error::other("no random bytes"))?;
    stream.write_all(&own).await?;
    let mut other = [0; SALT_BYTES];
    stream.read_exact(&mut other).await?;
    let [client, server] = match side {
        Side::Client => [own, other],
        Side::Server => [other, own],
    };
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &[client, server].concat());
    let base = salt.extract(secret);
    let [to_server, to_client] = ["to server", "to client"].map(|label| key(&base, label));
    Ok(match side {
        Side::Client => Session::new(&to_server, &to_client),
        Side::Server => Session::new(&to_client, &to_server),
    })
}

fn key(base: &hkdf::Prk, label: &str) -> [u8; 32] {
    let mut key = [0; 32];
    let label = [label.as_bytes()];
    let expanded = base.expand(&label, &ring::aead::AES_256_GCM).and_then(|own| own.fill(&mut key));
    expanded.expect("a key is far shorter than HKDF's longest output");
    key
}

/// The largest message that is read, and the largest payload of a trace.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Messages of a connection that wait to be written at most; a trace that sends more fails.
const OUT_MAX: usize = 64;

const SALT_BYTES: usize = 32;
