//! The wire protocol between the service of programs and its clients, as specified in docs/traces.md: messages with
//! their lengths, inside TLS. The keys of the encryption of payloads come from the TLS session, so this module agrees
//! on none. It has no connections or timeouts.

use std::io;
use std::rc::Rc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use runtime::trace::Session;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Returns the keys with which a caller encrypts and decrypts payloads on this connection.
///
/// # Errors
/// Returns an error of TLS.
pub(super) fn caller_session(stream: &tls::Stream) -> io::Result<Rc<Session>> {
    Ok(Session::new(&stream.export_key(TO_SERVICE)?, &stream.export_key(TO_CALLER)?))
}

/// Returns the keys with which the service encrypts and decrypts payloads on this connection.
///
/// # Errors
/// Returns an error of TLS.
pub(super) fn service_session(stream: &tls::Stream) -> io::Result<Rc<Session>> {
    Ok(Session::new(&stream.export_key(TO_CALLER)?, &stream.export_key(TO_SERVICE)?))
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
    stream.write_all_buf(&mut Buf::chain(&length.to_be_bytes()[..], message)).await?;
    // TLS may still hold encrypted bytes.
    stream.flush().await
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The labels of the keys of both directions. Labels that are not registered begin with this word (RFC 5705, section
/// 4).
const TO_SERVICE: &str = "EXPERIMENTAL rebate programs to service";
const TO_CALLER: &str = "EXPERIMENTAL rebate programs to caller";
