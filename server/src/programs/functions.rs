//! The functions of the example service. `echo` answers by itself. Each of the others asks a peer, through the programs
//! that \[AccelFlow\] has for that peer:
//!
//! | function | arguments | programs |
//! |---|---|---|
//! | `echo` | anything | none |
//! | `read` | `{"key": K}` | T4 and T5 (the cache); after a miss T6 (the database), which fills the cache (T7) |
//! | `write` | `{"key": K, "value": V}` | T8 and T7 (the cache) |
//! | `call` | anything | T9 and T10 (another service, which echoes) |
//! | `fetch` | `{"path": P}` | T11 and T12 (a web server) |
//!
//! Keys, values and paths are texts. Whatever else arguments have is skipped and takes no memory.

use bytes::Bytes;
use protocol::key::Key;
use runtime::trace::TraceInput;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{COMPRESS_FROM_BYTES, NAME_SHOWN, Peer, ProgramService, refusal};
use crate::context::ADMISSION_MAX;

#[derive(Deserialize)]
struct Read {
    key: String,
}

#[derive(Deserialize)]
struct Write {
    key: String,
    value: String,
}

#[derive(Deserialize)]
struct Fetch {
    path: String,
}

/// The member of a peer's answer that the caller gets.
#[derive(Deserialize)]
struct Item {
    value: serde_json::Value,
}

impl ProgramService {
    /// Runs a function and returns its answer, which is JSON unless `echo` was asked with something else.
    pub(super) async fn call(&self, function: &str, request: Bytes, peer: &Peer) -> Bytes {
        let answered = match function {
            "echo" => return request,
            "read" => self.read(request, peer).await,
            "write" => self.write(request, peer).await,
            "call" => self.ask("T9", request, "echo", peer).await,
            "fetch" => self.fetch(request, peer).await,
            _ => Err(format!(
                "no function is called {:?}; there are echo, read, write, call and fetch",
                shown(function)
            )),
        };
        answered.unwrap_or_else(|why| refusal(&why))
    }

    async fn read(&self, request: Bytes, peer: &Peer) -> Result<Bytes, String> {
        let Read { key } = parsed(&request)?;
        drop(request);
        check_key(&key)?;
        let question = json!({ "key": key }).to_string();
        let answer = self.ask("T4", question.into(), "", peer).await?;
        let Item { value } = parsed(&answer)?;
        Ok(json!({ "key": key, "value": value }).to_string().into())
    }

    async fn write(&self, request: Bytes, peer: &Peer) -> Result<Bytes, String> {
        let Write { key, value } = parsed(&request)?;
        drop(request);
        check_key(&key)?;
        let item = json!({ "key": key, "value": value }).to_string();
        drop(value);
        self.ask("T8", item.into(), "", peer).await?;
        Ok(json!({ "stored": key }).to_string().into())
    }

    async fn fetch(&self, request: Bytes, peer: &Peer) -> Result<Bytes, String> {
        let Fetch { path } = parsed(&request)?;
        let is_path = path.starts_with('/') && !path.contains(char::is_whitespace);
        if !is_path || path.len() > PATH_BYTES_MAX {
            return Err(format!(
                "{:?} is no path: it begins with /, has no white space, and at most {PATH_BYTES_MAX} bytes",
                shown(&path)
            ));
        }
        let question = format!("GET {path} HTTP/1.1\r\n\r\n");
        let page = self.ask("T11", question.into(), "", peer).await?;
        let page = String::from_utf8_lossy(&page);
        Ok(json!({ "path": path, "page": page }).to_string().into())
    }

    /// Runs the program that asks a peer, and returns what the peer answers.
    async fn ask(
        &self,
        program: &str,
        payload: Bytes,
        function: &str,
        peer: &Peer,
    ) -> Result<Bytes, String> {
        // A payload may be much longer than the request on the wire, which the caller of this function has charged.
        let bytes = (COPIES * payload.len()) as u64;
        let growing = peer.caller.context.budget.grow(bytes);
        let held = tokio::time::timeout(ADMISSION_MAX, growing).await;
        let _held = held.map_err(|_| "there is no memory for the request".to_owned())?;
        let compresses = payload.len() >= COMPRESS_FROM_BYTES;
        let mut input = TraceInput::new(payload)
            .session(self.peers.session())
            .function(function)
            .field("to-compress", u32::from(compresses));
        self.mark(&mut input, peer);
        let ended = self.executor.run_trace(program, input).await;
        let ended = ended.map_err(|error| error.cause.to_string())?;
        // Programs end with a message if the peer answers with an exception.
        match ended.format.bare() {
            Some(_) => Ok(ended.payload),
            None => Err(format!("the peer that {program} asks does not have it, or refuses")),
        }
    }
}

fn parsed<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        // The text of an error may have what was sent.
        let why: String = error.to_string().chars().take(WHY_CHARS_MAX).collect();
        format!("the arguments are not those of the function: {why}")
    })
}

/// Checks that the text is a key of the cache.
fn check_key(key: &str) -> Result<(), String> {
    let checked = Key::new(key.as_bytes()).map(drop);
    checked.map_err(|error| format!("key {:?}: {error}", shown(key)))
}

fn shown(text: &str) -> String {
    text.chars().take(NAME_SHOWN).collect()
}

/// The payload, its messages to the peer and to the caller, and what the peer makes of it.
const COPIES: usize = 4;
const PATH_BYTES_MAX: usize = 2_048;
const WHY_CHARS_MAX: usize = 200;
