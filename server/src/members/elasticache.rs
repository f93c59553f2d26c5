//! The nodes that an ElastiCache configuration endpoint lists. The endpoint is one of the fleet's servers in every
//! respect but this question: it is reached with the same TLS, and gets the same login.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lookup::Found;
use crate::config::{HostPort, LoginScheme, split_tls};
use crate::upstream::{Conversation, StoreLogin, is_wanted_by, value_of_packet, wanted};

/// Asks an endpoint for the nodes of its cluster.
///
/// # Errors
/// Describes why there is no list. There is no time limit.
pub(super) async fn nodes(
    endpoint: &HostPort,
    login: Option<&StoreLogin>,
) -> Result<Found, String> {
    let text = |error: std::io::Error| error.to_string();
    let to = endpoint.to_string();
    let mut stream: Box<dyn Conversation + Send> = match split_tls(&to) {
        (false, to) => Box::new(TcpStream::connect(to).await.map_err(text)?),
        (true, to) => {
            let outgoing = tls::outgoing().map_err(text)?;
            Box::new(outgoing.connect(to, tls::Application::Plain).await.map_err(text)?)
        }
    };
    let list = match login {
        None => list_of_text(&mut *stream, false).await?,
        Some(login) => {
            login.log_in(&mut *stream).await.map_err(text)?;
            match login.scheme {
                LoginScheme::Text => list_of_text(&mut *stream, true).await?,
                LoginScheme::Sasl => list_of_packets(&mut *stream).await?,
            }
        }
    };
    let list = list.ok_or("the endpoint knows no `config get cluster`")?;
    parse_list(&list, endpoint.is_tls)
}

/// Returns the list, or `None` if the endpoint knows no command for it.
async fn list_of_text(
    stream: &mut (dyn Conversation + Send),
    has_login: bool,
) -> Result<Option<String>, String> {
    // Engines older than 1.4.14 have the list under a key.
    for question in ["config get cluster\r\n", "get AmazonElastiCache:cluster\r\n"] {
        stream.write_all(question.as_bytes()).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let answer = read_answer(stream).await?;
        if answer.starts_with("ERROR\r\n") {
            continue;
        }
        let line = answer.lines().next().unwrap_or_default();
        if is_wanted_by(line.as_bytes()) {
            return Err(wanted(has_login).to_owned());
        }
        if is_error(answer.as_bytes()) {
            return Err(format!("it answers {line:?}"));
        }
        return list_in(&answer).map(|list| Some(list.to_owned()));
    }
    Ok(None)
}

/// Asks in the binary protocol, which is the only one of a server with SASL. Returns `None` if the endpoint knows no
/// command for the list.
async fn list_of_packets(stream: &mut (dyn Conversation + Send)) -> Result<Option<String>, String> {
    for question in [(CONFIG_GET, &b"cluster"[..]), (GET, b"AmazonElastiCache:cluster")] {
        let value = value_of_packet(stream, question, ANSWER_BYTES_MAX).await;
        if let Some(value) = value.map_err(|error| error.to_string())? {
            return String::from_utf8(value).map(Some).map_err(|_| NO_TEXT.to_owned());
        }
    }
    Ok(None)
}

/// Reads up to the line `END` or an error line.
async fn read_answer(stream: &mut (dyn Conversation + Send)) -> Result<String, String> {
    let mut answer = Vec::new();
    let is_whole = |answer: &[u8]| {
        answer.ends_with(b"\r\nEND\r\n")
            || answer.ends_with(b"\r\n") && (is_error(answer) || answer == b"END\r\n")
    };
    while !is_whole(&answer) {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
        match stream.read_buf(&mut answer).await {
            Ok(0) => return Err("the endpoint closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    String::from_utf8(answer).map_err(|_| NO_TEXT.to_owned())
}

fn is_error(answer: &[u8]) -> bool {
    [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|word| answer.starts_with(word))
}

/// Returns the list in an answer: a line with its length, the list, and `END`.
fn list_in(answer: &str) -> Result<&str, String> {
    let list = answer.split_once("\r\n").map(|(_, list)| list);
    list.ok_or_else(|| format!("no list in {answer:?}"))
}

/// Parses the version of the list, and the nodes as `HOST|ADDRESS|PORT`. Clients of ElastiCache hash the host if there
/// is one.
fn parse_list(list: &str, is_tls: bool) -> Result<Found, String> {
    let line = list.lines().nth(1).ok_or_else(|| format!("no nodes in {list:?}"))?;
    let node = |node: &str| {
        let mut parts = node.split('|');
        let (host, address, port) = (parts.next()?, parts.next()?, parts.next()?);
        let host = if host.is_empty() { address } else { host };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then(|| (HostPort { host: host.to_owned(), port, is_tls }, None))
    };
    let nodes = line.split_ascii_whitespace();
    nodes.map(|text| node(text).ok_or_else(|| format!("{text:?} is no node"))).collect()
}

/// The command for the list in the binary protocol, which only ElastiCache has, and that for a value.
const CONFIG_GET: u8 = 0x60;
const GET: u8 = 0x00;

const NO_TEXT: &str = "an answer that is no text";

/// The longest list of an endpoint. A node takes less than 300 bytes.
const ANSWER_BYTES_MAX: usize = 512 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use api::LoginFile;
    use tokio::net::TcpListener;

    use super::*;

    fn parsed(answer: &str) -> Result<Vec<String>, String> {
        let found = parse_list(list_in(answer)?, false)?;
        Ok(found.iter().map(|(one, _)| one.to_string()).collect())
    }

    #[test]
    fn nodes_are_read_with_their_hosts() {
        let list = "12\na.cache.example|10.0.0.1|11211 |10.0.0.2|11212\n";
        let answer = format!("CONFIG cluster 0 {}\r\n{list}\r\nEND\r\n", list.len());
        assert_eq!(parsed(&answer).unwrap(), ["a.cache.example:11211", "10.0.0.2:11212"]);
    }

    #[test]
    fn lists_that_name_no_nodes_are_refused() {
        for answer in [
            "END\r\n",
            "CONFIG cluster 0 5\r\n12\na|b\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\na|b|0\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\n||11211\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\na|b|65536\n\r\nEND\r\n",
        ] {
            assert!(parsed(answer).is_err(), "{answer:?}");
        }
    }

    /// Asks an endpoint that expects these messages in turn and gives these answers.
    async fn asked(
        exchanges: Vec<(Vec<u8>, Vec<u8>)>,
        login: Option<&StoreLogin>,
    ) -> Result<Vec<String>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint = HostPort { host: "127.0.0.1".to_owned(), port, is_tls: false };
        let serve = async {
            let (mut client, _) = listener.accept().await.unwrap();
            for (question, answer) in exchanges {
                let mut read = vec![0; question.len()];
                client.read_exact(&mut read).await.unwrap();
                let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
                assert_eq!(shown(&read), shown(&question));
                client.write_all(&answer).await.unwrap();
            }
            client
        };
        let both = async { tokio::join!(nodes(&endpoint, login), serve) };
        let (found, _client) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        found.map(|found| found.iter().map(|(one, _)| one.to_string()).collect())
    }

    fn text(question: &str, answer: &str) -> (Vec<u8>, Vec<u8>) {
        (question.into(), answer.into())
    }

    /// A packet with this magic byte, operation, status, extras, key and value.
    fn packet(magic: u8, opcode: u8, status: u16, parts: [&[u8]; 3]) -> Vec<u8> {
        let [extras, key, value] = parts;
        let mut packet = vec![0; 24];
        (packet[0], packet[1]) = (magic, opcode);
        packet[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
        packet[4] = extras.len() as u8;
        packet[6..8].copy_from_slice(&status.to_be_bytes());
        let body_bytes = (extras.len() + key.len() + value.len()) as u32;
        packet[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        [&packet, extras, key, value].concat()
    }

    fn login(folder: &Path, scheme: LoginScheme) -> StoreLogin {
        let path = folder.join("login");
        std::fs::write(&path, "web:secret\n").unwrap();
        StoreLogin { file: LoginFile::open(&path).unwrap(), scheme }
    }

    const LIST: &str = "CONFIG cluster 0 24\r\n12\n|10.0.0.2|11212\n\r\nEND\r\n";
    const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
    const NODES: [&str; 1] = ["10.0.0.2:11212"];

    #[tokio::test]
    async fn an_endpoint_gets_the_login_of_the_servers() {
        let folder = tempfile::tempdir().unwrap();
        let login = login(folder.path(), LoginScheme::Text);
        let exchanges = vec![
            text("mn\r\n", UNAUTHENTICATED),
            text("set login 0 0 10\r\nweb secret\r\n", "STORED\r\n"),
            text("config get cluster\r\n", LIST),
        ];
        assert_eq!(asked(exchanges, Some(&login)).await.unwrap(), NODES);
    }

    #[tokio::test]
    async fn an_endpoint_without_logins_gets_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let login = login(folder.path(), LoginScheme::Text);
        let exchanges = vec![text("mn\r\n", "MN\r\n"), text("config get cluster\r\n", LIST)];
        assert_eq!(asked(exchanges, Some(&login)).await.unwrap(), NODES);
    }

    #[tokio::test]
    async fn an_endpoint_with_sasl_is_asked_with_packets() {
        let folder = tempfile::tempdir().unwrap();
        let login = login(folder.path(), LoginScheme::Sasl);
        let asks = |opcode, key: &'static [u8], value: &'static [u8]| {
            packet(0x80, opcode, 0, [&[], key, value])
        };
        let answers =
            |opcode, status, value: &'static [u8]| packet(0x81, opcode, status, [&[], &[], value]);
        let list = packet(0x81, 0, 0, [&[0; 4], &[], b"12\n|10.0.0.2|11212\n"]);
        let exchanges = vec![
            (asks(0x21, b"PLAIN", b"\0web\0secret"), answers(0x21, 0, b"Authenticated")),
            (asks(0x60, b"cluster", b""), answers(0x60, 0x81, b"Unknown command")),
            (asks(0x00, b"AmazonElastiCache:cluster", b""), list),
        ];
        assert_eq!(asked(exchanges, Some(&login)).await.unwrap(), NODES);
    }

    #[tokio::test]
    async fn a_refused_login_is_told_without_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let login = login(folder.path(), LoginScheme::Text);
        let exchanges = vec![
            text("mn\r\n", UNAUTHENTICATED),
            text("set login 0 0 10\r\nweb secret\r\n", "CLIENT_ERROR authentication failure\r\n"),
        ];
        let why = asked(exchanges, Some(&login)).await.unwrap_err();
        assert!(why.contains("\"web\"") && why.contains("failure"), "{why}");
        assert!(!why.contains("secret"), "{why}");
    }

    #[tokio::test]
    async fn an_endpoint_that_wants_a_login_names_the_key_for_it() {
        let exchanges = vec![text("config get cluster\r\n", UNAUTHENTICATED)];
        let why = asked(exchanges, None).await.unwrap_err();
        assert!(why.contains("store.login_file"), "{why}");
    }

    #[tokio::test]
    async fn an_old_endpoint_has_the_list_under_a_key() {
        let exchanges = vec![
            text("config get cluster\r\n", "ERROR\r\n"),
            text("get AmazonElastiCache:cluster\r\n", LIST),
        ];
        assert_eq!(asked(exchanges, None).await.unwrap(), NODES);
        let refusal = "ERROR Too many open connections\r\n";
        let why = asked(vec![text("config get cluster\r\n", refusal)], None).await.unwrap_err();
        assert!(why.contains("Too many open connections"), "{why}");
    }
}
