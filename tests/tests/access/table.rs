//! The table of rights: identities, commands and keys, and a way to try each cell over each protocol.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use api::tonic::metadata::MetadataValue;
use api::tonic::{Code, Request};
use api::v1::cache_client::CacheClient;
use api::v1::compression_client::CompressionClient;
use api::v1::scheduler_client::SchedulerClient;
use api::v1::store_client::StoreClient;
use api::v1::{
    DeleteRequest, DescribeRequest, ExecuteRequest, GetRequest, MultiGetRequest, QueryRequest,
    SetRequest,
};
use rebate_tests::TIMEOUT;

use super::packets::BinaryProtocol;
use super::{Guarded, Identified};

/// The roles of the table. `admin` is the only one that may do everything.
pub(crate) const RULES: &str = r#"
[roles.reader]
commands = ["read"]
[roles.web]
commands = ["read", "write", "delete"]
key_prefix = "web:"
[roles.watcher]
commands = ["stats"]
[roles.frontend]
commands = ["read", "write", "store-service", "compression-service"]
[roles.admin]
commands = ["all"]
[roles.ten]
commands = ["all"]
requests_per_s = 500
[roles.strict]
commands = ["all"]
requests_per_s = 20
over_quota = "refuse"
[roles.two]
commands = ["all"]
connections = 2
[roles.slow]
commands = ["all"]
bytes_per_s = "1MiB"
[[users]]
name = "reader"
password = "reader-password"
role = "reader"
[[users]]
name = "web"
password = "web-password"
role = "web"
[[users]]
name = "watcher"
password = "watcher-password"
role = "watcher"
[[users]]
name = "frontend"
password = "frontend-password"
role = "frontend"
[[users]]
name = "admin"
password = "admin-password"
role = "admin"
[[users]]
name = "ten"
password = "ten-password"
role = "ten"
[[users]]
name = "strict"
password = "strict-password"
role = "strict"
[[users]]
name = "two"
password = "two-password"
role = "two"
[[users]]
name = "slow"
password = "slow-password"
role = "slow"
"#;

/// What a client tries. `KEY` stands for the key.
pub(crate) const READ: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const DELETE: u16 = 4;
pub(crate) const FLUSH: u16 = 8;
pub(crate) const STATS: u16 = 16;
pub(crate) const DUMP: u16 = 32;
pub(crate) const ADMIN: u16 = 64;
pub(crate) const STORE: u16 = 128;
pub(crate) const COMPRESSION: u16 = 256;
pub(crate) const SCHEDULER: u16 = 512;

/// A way to try commands as a user: one row for each protocol.
pub(crate) trait Protocol {
    /// Returns the commands, with the rights that each needs. Those with a key have `KEY` in their names.
    fn commands(&self) -> Vec<(&'static str, u16)>;
    /// Runs a command as `user`, who is nobody if it is empty. Returns whether the server served it.
    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool;
}

pub(crate) struct TextProtocol;

impl Protocol for TextProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("get KEY\r\n", READ),
            ("gets KEY\r\n", READ),
            ("gat 9 KEY\r\n", READ | WRITE),
            ("gats 9 KEY\r\n", READ | WRITE),
            ("get web:other KEY\r\n", READ),
            ("set KEY 0 0 1\r\n1\r\n", WRITE),
            ("add KEY 0 0 1\r\n1\r\n", WRITE),
            ("replace KEY 0 0 1\r\n1\r\n", WRITE),
            ("append KEY 0 0 1\r\n1\r\n", WRITE),
            ("prepend KEY 0 0 1\r\n1\r\n", WRITE),
            ("cas KEY 0 0 1 9\r\n1\r\n", WRITE),
            ("touch KEY 9\r\n", WRITE),
            ("incr KEY 1\r\n", READ | WRITE),
            ("decr KEY 1\r\n", READ | WRITE),
            ("delete KEY\r\n", DELETE),
            ("flush_all\r\n", FLUSH),
            ("flush_all 0\r\n", FLUSH),
            ("stats\r\n", STATS),
            ("stats items\r\n", STATS),
            ("stats dictionaries\r\n", DUMP),
            ("stats reset\r\n", ADMIN),
            ("stats conns\r\n", ADMIN),
            ("stats cachedump 1 0\r\n", DUMP),
            ("lru_crawler metadump all\r\n", DUMP),
            ("lru_crawler mgdump all\r\n", DUMP),
            ("lru_crawler enable\r\n", ADMIN),
            ("verbosity 1\r\n", ADMIN),
            ("cache_memlimit 64\r\n", ADMIN),
            ("slabs automove 0\r\n", ADMIN),
            ("lru mode flat\r\n", ADMIN),
            ("shutdown\r\n", ADMIN),
            ("watch\r\n", ADMIN),
            ("watch fetchers mutations\r\n", ADMIN),
            ("version\r\n", 0),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        let answer = server.text(user).ask(command.replace("KEY", key).as_bytes());
        assert!(!answer.is_empty(), "{user}: {command}: closed");
        // A set of a client without rights is a login.
        ["permission denied", "unauthenticated", "bad authentication token"]
            .iter()
            .all(|refusal| !answer.contains(refusal))
    }
}

struct MetaProtocol;

impl Protocol for MetaProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("mg KEY v\r\n", READ),
            ("mg KEY T9 v\r\n", READ | WRITE),
            ("mg KEY N9 v\r\n", READ | WRITE),
            ("mg KEY R9 v\r\n", READ | WRITE),
            ("ms KEY 1\r\n1\r\n", WRITE),
            ("ms KEY 1 MA\r\n1\r\n", WRITE),
            ("md KEY\r\n", DELETE),
            ("md KEY I T9\r\n", DELETE | WRITE),
            ("md KEY x\r\n", DELETE | WRITE),
            ("ms KEY 1 MA N9\r\n1\r\n", WRITE),
            ("ms KEY 1 E9\r\n1\r\n", WRITE),
            ("ma KEY N0 v\r\n", READ | WRITE),
            ("ma KEY MD\r\n", READ | WRITE),
            ("me KEY\r\n", READ),
            ("mn\r\n", 0),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        TextProtocol.is_served(server, user, command, key)
    }
}

pub(crate) struct GrpcProtocol(tokio::runtime::Runtime);

impl GrpcProtocol {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self(runtime.expect("a runtime"))
    }

    pub(crate) fn call(&self, server: &Guarded, user: &str, command: &str, key: &str) -> Code {
        let header = match server.logs_in() {
            true => authorization(user, &format!("{user}-password")),
            false => String::new(),
        };
        self.call_at(server.grpc_of(user), &header, command, key)
    }

    pub(crate) fn call_with(
        &self,
        server: &Guarded,
        header: &str,
        command: &str,
        key: &str,
    ) -> Code {
        self.call_at(server.grpc_of(""), header, command, key)
    }

    fn call_at(&self, to: SocketAddr, header: &str, command: &str, key: &str) -> Code {
        let _inside = self.0.enter();
        let address = to.to_string().parse().expect("an address");
        let channel = api::wire::channel(&address, TIMEOUT).expect("a channel");
        let key = key.as_bytes().to_vec();
        let get = GetRequest { key: key.clone().into(), ..GetRequest::default() };
        let mut cache = CacheClient::new(channel.clone());
        let mut store = StoreClient::new(channel.clone());
        let set =
            SetRequest { key: key.clone().into(), value: "1".into(), ..SetRequest::default() };
        let delete = DeleteRequest { key: key.clone().into() };
        let many = MultiGetRequest {
            keys: vec!["web:other".into(), key.clone().into()],
            ..MultiGetRequest::default()
        };
        let line = command.strip_prefix("Store/Execute ").unwrap_or_default();
        let line = line.replace("KEY", &String::from_utf8_lossy(&key));
        let execute = ExecuteRequest { parts: vec![line.into_bytes().into()] };
        let answered = self.0.block_on(async {
            match command {
                "Cache/Get KEY" => cache.get(with(header, get)).await.map(drop),
                "Cache/MultiGet KEY" => cache.multi_get(with(header, many)).await.map(drop),
                "Cache/Set KEY" => cache.set(with(header, set)).await.map(drop),
                "Cache/Delete KEY" => cache.delete(with(header, delete)).await.map(drop),
                "Store/Get KEY" => store.get(with(header, get)).await.map(drop),
                "Store/MultiGet KEY" => store.multi_get(with(header, many)).await.map(drop),
                "Store/Set KEY" => store.set(with(header, set)).await.map(drop),
                "Store/Delete KEY" => store.delete(with(header, delete)).await.map(drop),
                "Compression/Describe" => CompressionClient::new(channel)
                    .describe(with(header, DescribeRequest::default()))
                    .await
                    .map(drop),
                "Scheduler/Query" => SchedulerClient::new(channel)
                    .query(with(header, QueryRequest::default()))
                    .await
                    .map(drop),
                _ => store.execute(with(header, execute)).await.map(drop),
            }
        });
        answered.err().map_or(Code::Ok, |status| status.code())
    }
}

impl Protocol for GrpcProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("Cache/Get KEY", READ),
            ("Cache/MultiGet KEY", READ),
            ("Cache/Set KEY", WRITE),
            ("Cache/Delete KEY", DELETE),
            ("Store/Get KEY", STORE | READ),
            ("Store/MultiGet KEY", STORE | READ),
            ("Store/Set KEY", STORE | WRITE),
            ("Store/Delete KEY", STORE | DELETE),
            ("Store/Execute get KEY\r\n", STORE | READ),
            ("Store/Execute set KEY 0 0 1\r\n1\r\n", STORE | WRITE),
            ("Store/Execute set KEY 0 0 2000000\r\n1\r\n", STORE | WRITE),
            ("Store/Execute flush_all\r\n", STORE | FLUSH),
            ("Store/Execute stats\r\n", STORE | STATS),
            ("Store/Execute lru_crawler metadump all\r\n", STORE | DUMP),
            ("Store/Execute verbosity 1\r\n", STORE | ADMIN),
            ("Compression/Describe", COMPRESSION),
            ("Scheduler/Query", SCHEDULER),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        match self.call(server, user, command, key) {
            Code::PermissionDenied | Code::Unauthenticated => false,
            // The command whose value is missing is refused after its rights were checked.
            Code::Ok | Code::InvalidArgument => true,
            other => panic!("{user}: {command}: {other}"),
        }
    }
}

pub(crate) fn with<T>(authorization: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !authorization.is_empty() {
        let value = MetadataValue::try_from(authorization).expect("a header");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Returns the header of a user, or nothing for nobody.
pub(crate) fn authorization(user: &str, password: &str) -> String {
    if user.is_empty() {
        String::new()
    } else {
        format!("Bearer {}", base64(&format!("{user}:{password}")))
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut coded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            coded.push(if digit > three.len() { '=' } else { DIGITS[value as usize] as char });
        }
    }
    coded
}

/// The users of the table: the rights and the prefix of each.
pub(crate) const USERS: [(&str, u16, &str); 6] = [
    ("", 0, ""),
    ("reader", READ, ""),
    ("web", READ | WRITE | DELETE, "web:"),
    ("watcher", STATS, ""),
    ("frontend", READ | WRITE | STORE | COMPRESSION, ""),
    ("admin", u16::MAX, ""),
];

#[test]
fn every_command_is_open_to_its_roles_only() {
    try_every_cell(&Guarded::start(RULES));
}

#[test]
fn every_cell_is_the_same_over_tls() {
    try_every_cell(&Guarded::start_with_tls(RULES, Identified::ByPassword));
}

#[test]
fn every_cell_is_the_same_for_certificates() {
    let certificate =
        |user: &str| format!("[[certificates]]\nname = \"CN={user}\"\nrole = \"{user}\"\n");
    let users = USERS.iter().filter(|(user, ..)| !user.is_empty());
    let certificates: String = users.map(|(user, ..)| certificate(user)).collect();
    let rules = format!("{RULES}{certificates}");
    try_every_cell(&Guarded::start_with_tls(&rules, Identified::ByCertificate));
}

/// Tries every command of every protocol as every user with every key.
fn try_every_cell(server: &Guarded) {
    let grpc = GrpcProtocol::new();
    let protocols: [&dyn Protocol; 4] = [&TextProtocol, &MetaProtocol, &BinaryProtocol, &grpc];
    let mut wrong = BTreeSet::new();
    for protocol in protocols {
        for (command, needed) in protocol.commands() {
            for (user, rights, prefix) in USERS {
                let keys: &[&str] =
                    if command.contains("KEY") { &["web:a", "a", "we"] } else { &[""] };
                for key in keys {
                    let has_key = key.is_empty() || key.starts_with(prefix);
                    let is_open = !user.is_empty() && rights & needed == needed && has_key;
                    if protocol.is_served(server, user, command, key) != is_open {
                        wrong.insert(format!(
                            "{user:?} {command:?} {key:?} must be open: {is_open}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
