//! The wire protocol between the service of programs and its clients, as specified in docs/traces.md. Each connection
//! derives its own keys. The tenant's secret authenticates both sides. This module has no connections or timeouts.

use std::io;
use std::rc::Rc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use device::TenantId;
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use runtime::trace::Session;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::secrets::Secrets;

/// Performs the client's side of the handshake. The client sends its tenant and 32 random bytes, and the
/// service answers with 32 random bytes. Two keys, one per direction, are derived from both and the secret.
pub(super) async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    tenant: TenantId,
    secret: &[u8],
) -> io::Result<Rc<Session>> {
    let nonce = random()?;
    let hello = [&MAGIC[..], &tenant.0.to_be_bytes(), &nonce].concat();
    stream.write_all(&hello).await?;
    let mut other = [0; RANDOM_BYTES];
    stream.read_exact(&mut other).await?;
    let [to_service, to_caller] = keys(secret, &nonce, &other);
    Ok(Session::new(&to_service, &to_caller))
}

/// Performs the service's side of the handshake.
///
/// # Errors
/// Returns an error if the bytes are not a handshake, or if the tenant has no secret.
pub(super) async fn handshake(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secrets: &Secrets,
) -> io::Result<(TenantId, Rc<Session>)> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(invalid("it does not begin as a caller of traces".to_owned()));
    }
    let tenant = TenantId(stream.read_u16().await?);
    let mut other = [0; RANDOM_BYTES];
    stream.read_exact(&mut other).await?;
    let unknown = || invalid(format!("tenant {} has no secret here", tenant.0));
    let secret = secrets.get(tenant).ok_or_else(unknown)?;
    let nonce = random()?;
    stream.write_all(&nonce).await?;
    let [to_service, to_caller] = keys(secret, &other, &nonce);
    Ok((tenant, Session::new(&to_caller, &to_service)))
}

/// Reads the length of the next message.
///
/// # Errors
/// Returns an error if the message is longer than `bytes_max`.
pub(super) async fn read_length(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<usize> {
    let first = stream.read_u8().await?;
    read_length_after(stream, first, bytes_max).await
}

/// Reads the rest of the length of a message, whose first byte has been read.
///
/// # Errors
/// Returns an error if the message is longer than `bytes_max`.
pub(super) async fn read_length_after(
    stream: &mut (impl AsyncRead + Unpin),
    first: u8,
    bytes_max: usize,
) -> io::Result<usize> {
    let mut length = [first, 0, 0, 0];
    stream.read_exact(&mut length[1..]).await?;
    let bytes = u32::from_be_bytes(length) as usize;
    let too_long = || invalid(format!("a message of {bytes} bytes; at most {bytes_max} are taken"));
    if bytes <= bytes_max { Ok(bytes) } else { Err(too_long()) }
}

/// Reads a message of `bytes` bytes.
pub(super) async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: usize,
) -> io::Result<Bytes> {
    let mut message = BytesMut::with_capacity(bytes);
    read_on(stream, &mut message, bytes).await?;
    Ok(message.freeze())
}

/// Reads the rest of a message of `bytes` bytes. If the call is cancelled, the next call continues.
pub(super) async fn read_on(
    stream: &mut (impl AsyncRead + Unpin),
    message: &mut BytesMut,
    bytes: usize,
) -> io::Result<()> {
    while message.len() < bytes {
        let lacking = bytes - message.len();
        if stream.read_buf(&mut message.limit(lacking)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Writes a message, preceded by its length.
pub(super) async fn write_message(
    stream: &mut (impl AsyncWrite + Unpin),
    message: Bytes,
) -> io::Result<()> {
    let length = u32::try_from(message.len()).expect("payloads are bounded far below");
    stream.write_all_buf(&mut Buf::chain(&length.to_be_bytes()[..], message)).await
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn random() -> io::Result<[u8; RANDOM_BYTES]> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| io::Error::other("the system has no random bytes"))
}

fn keys(secret: &[u8], caller: &[u8; RANDOM_BYTES], service: &[u8; RANDOM_BYTES]) -> [[u8; 32]; 2] {
    let base = hkdf::Salt::new(hkdf::HKDF_SHA256, &[*caller, *service].concat()).extract(secret);
    ["to service", "to caller"].map(|label| {
        let mut key = [0; 32];
        let label = [label.as_bytes()];
        let expanded = base.expand(&label, &ring::aead::AES_256_GCM);
        let filled = expanded.and_then(|output| output.fill(&mut key));
        filled.expect("a key is far shorter than HKDF's longest output");
        key
    })
}

/// The first bytes of a connection: the protocol and its version.
const MAGIC: [u8; 4] = *b"RBT\x01";

const RANDOM_BYTES: usize = 32;
