//! The functions of the example service. `echo` answers by itself. Each of the others asks a peer, through the programs
//! that \[AccelFlow\] has for that peer:
//!
//! | function | arguments | programs |
//! |---|---|---|
//! | `echo` | anything | none |
//! | `read` | `{"key": K}` | T4 and T5 (the cache); after a miss T6 (the database), which writes to the cache (T7) |
//! | `write` | `{"key": K, "value": V}` | T8 and T7 (the cache) |
//! | `call` | anything | T9 and T10 (another service, which echoes) |
//! | `fetch` | `{"path": P}` | T11 and T12 (a web server) |

use bytes::Bytes;
use protocol::key::Key;
use runtime::trace::TraceInput;
use serde_json::{Value, json};

use super::{COMPRESS_FROM_BYTES, NAME_SHOWN, Peer, ProgramService, refusal};

impl ProgramService {
    /// Runs a function and returns its answer, which is JSON unless `echo` was asked with something else.
    pub(super) async fn call(&self, function: &str, request: Bytes, peer: &Peer) -> Bytes {
        let answered = match function {
            "echo" => return request,
            "read" => self.read(&request, peer).await,
            "write" => self.write(&request, peer).await,
            "call" => self.ask("T9", request, "echo", peer).await,
            "fetch" => self.fetch(&request, peer).await,
            _ => {
                let name: String = function.chars().take(NAME_SHOWN).collect();
                Err(format!(
                    "no function is called {name:?}; there are echo, read, write, call and fetch"
                ))
            }
        };
        answered.unwrap_or_else(|why| refusal(&why))
    }

    async fn read(&self, request: &Bytes, peer: &Peer) -> Result<Bytes, String> {
        let request = parsed(request)?;
        let key = key(&request)?;
        let question = json!({ "key": key }).to_string();
        let answer = parsed(&self.ask("T4", question.into(), "", peer).await?)?;
        let value = answer.get("value").ok_or("the answer has no value")?;
        Ok(json!({ "key": key, "value": value }).to_string().into())
    }

    async fn write(&self, request: &Bytes, peer: &Peer) -> Result<Bytes, String> {
        let request = parsed(request)?;
        let key = key(&request)?;
        let value = request.get("value").ok_or("\"value\" is missing")?;
        let item = json!({ "key": key, "value": value }).to_string();
        self.ask("T8", item.into(), "", peer).await?;
        Ok(json!({ "stored": key }).to_string().into())
    }

    async fn fetch(&self, request: &Bytes, peer: &Peer) -> Result<Bytes, String> {
        let request = parsed(request)?;
        let path = text(&request, "path")?;
        if path.contains(char::is_whitespace) {
            return Err(format!("{path:?} is no path, because it has white space"));
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

fn parsed(json: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(json).map_err(|error| format!("it is not JSON: {error}"))
}

/// Returns the member `key`, if it is a key of the cache.
fn key(document: &Value) -> Result<&str, String> {
    let key = text(document, "key")?;
    Key::new(key.as_bytes()).map_err(|error| format!("key {key:?}: {error}"))?;
    Ok(key)
}

fn text<'d>(document: &'d Value, name: &str) -> Result<&'d str, String> {
    let member = document.get(name).and_then(Value::as_str);
    member.ok_or_else(|| format!("{name:?} is missing, or not a text"))
}
