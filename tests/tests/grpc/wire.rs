//! Speaks HTTP/2 without a library that would reject bad input: frames as bytes, and calls whose messages are bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use api::tonic::codegen::{Bytes, http};
use rebate_tests::TIMEOUT;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Returns the bytes of one HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame's length").to_be_bytes();
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the headers of a call, without Huffman coding and without the dynamic table.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    push_text(&mut block, path.as_bytes());
    block.push(0x01);
    push_text(&mut block, b"localhost");
    push_header(&mut block, b"content-type", b"application/grpc");
    push_header(&mut block, b"te", b"trailers");
    block
}

/// Appends a header that is not added to the dynamic table.
pub(crate) fn push_header(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0x00);
    push_text(block, name);
    push_text(block, value);
}

/// Appends an HPACK string of any length.
pub(crate) fn push_text(block: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(rest as u8);
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text);
}

/// Returns a gRPC message: a prefix and these bytes.
pub(crate) fn message(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a message's length");
    [&[0], &length.to_be_bytes()[..], bytes].concat()
}

/// A connection that sends raw bytes. A thread discards what arrives, except after [`Raw::connect_deaf`].
pub(crate) struct Raw {
    stream: TcpStream,
    reader: Option<JoinHandle<()>>,
}

impl Raw {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let mut raw = Self::connect_deaf(addr);
        let mut stream = raw.stream.try_clone().expect("a second handle");
        raw.reader = Some(std::thread::spawn(move || {
            let mut scrap = vec![0; 64 << 10];
            while matches!(stream.read(&mut scrap), Ok(bytes) if bytes > 0) {}
        }));
        raw
    }

    /// Opens a connection that never reads. A write that does not finish within two seconds fails.
    pub(crate) fn connect_deaf(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("the server accepts");
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a time limit");
        Self { stream, reader: None }
    }

    /// Sends bytes. Returns false after the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Ends the sending side and reads until the connection ends. Returns false if it does not end within [`TIMEOUT`].
    pub(crate) fn ends(mut self) -> bool {
        let _gone = self.stream.shutdown(Shutdown::Write);
        let _unsupported = self.stream.set_read_timeout(Some(TIMEOUT));
        let mut scrap = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut scrap) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _gone = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ended = reader.join();
        }
    }
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) words: String,
}

/// Makes a call with this body. Returns none if the server ended it without an answer.
pub(crate) async fn call(
    addr: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Ended> {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts");
    let (client, connection) = h2::client::handshake(stream).await.ok()?;
    let connection = tokio::spawn(connection);
    let ended = tokio::time::timeout(TIMEOUT, call_on(client, path, headers, body));
    let ended = ended.await.unwrap_or_else(|_| panic!("{path} is not answered"));
    connection.abort();
    ended
}

async fn call_on(
    client: h2::client::SendRequest<Bytes>,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Ended> {
    let mut client = client.ready().await.ok()?;
    let mut request = http::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(()).expect("a request");
    let (response, mut send) = client.send_request(request, false).ok()?;
    // The answer may come before the whole body was sent.
    let _refused = send.send_data(Bytes::copy_from_slice(body), true);
    let (head, mut body) = response.await.ok()?.into_parts();
    if head.headers.contains_key("grpc-status") {
        return Some(ended(&head.headers));
    }
    // For a stream that never ends, the first message is enough.
    let endless = path.ends_with("/Parameters") || path.ends_with("/Watch");
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        if endless {
            return Some(Ended { code: Some(0), words: String::new() });
        }
    }
    let trailers = body.trailers().await.ok()??;
    Some(ended(&trailers))
}

fn ended(headers: &http::HeaderMap) -> Ended {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    Ended { code, words: text("grpc-message").unwrap_or_default().to_owned() }
}

/// Returns the body of a page over plain HTTP.
pub(crate) fn http(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}
