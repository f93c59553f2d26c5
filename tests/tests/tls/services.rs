//! TLS of gRPC, of the admin pages, and between the services of a fleet.

use std::net::SocketAddr;

use api::v1::cache_client::CacheClient;
use api::v1::{GetRequest, SetRequest};
use harness::poll_for;
use rebate_tests::{Authority, Port, Process, Server, TIMEOUT, http, rebate_command};
use tls::Application;

use crate::tunnel::Tunnel;

/// A process of `rebate serve` that clients of its own kind reach over TLS.
struct Service {
    process: Process,
    address: SocketAddr,
    _port: Port,
}

impl Service {
    fn start(authority: &Authority, args: &[&str]) -> Self {
        let port = Port::free().expect("a free port");
        let listen = format!("tls://{}", port.address());
        let mut command = rebate_command();
        command.args(["serve", "--grpc-listen", &listen, "--admin-listen", "tls://127.0.0.1:0"]);
        command.args(["--threads", "1"]).args(authority.server_flags()).args(args);
        let mut process = Process::start(&mut command).expect("it starts");
        let grpc = process.await_ready(TIMEOUT, "gRPC", |one| one.printed("grpc on tls://"));
        let address = grpc.expect("it serves").parse().expect("an address");
        Self { process, address, _port: port }
    }

    fn url(&self) -> String {
        format!("grpc://tls://{}", self.address)
    }

    fn admin(&self) -> SocketAddr {
        let admin = self.process.printed("admin on tls://").expect("admin pages");
        admin.parse().expect("an address")
    }
}

/// Sets and gets a value over gRPC.
fn exchange(address: &str) -> Result<Vec<u8>, api::tonic::Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let address = address.parse().expect("an address");
    let mut cache = CacheClient::new(api::wire::channel(&address, TIMEOUT)?);
    runtime.block_on(async {
        let set = SetRequest { key: "k".into(), value: "value".into(), ..SetRequest::default() };
        cache.set(set).await?;
        let get = GetRequest { key: "k".into(), ..GetRequest::default() };
        let found = cache.get(get).await?.into_inner();
        Ok(found.value.to_vec())
    })
}

#[test]
fn grpc_is_served_over_tls() {
    let authority = Authority::new();
    let service = Service::start(&authority, &["--listen", "127.0.0.1:0"]);
    let tunnel = Tunnel::start(&authority, None, service.address, Application::Http2);
    assert_eq!(exchange(&tunnel.address.to_string()).expect("an answer"), b"value");
    assert!(exchange(&service.address.to_string()).is_err(), "without TLS");
    // A client that trusts another authority sends nothing.
    let stranger = Authority::new();
    let strange = Tunnel::start(&stranger, None, service.address, Application::Http2);
    assert!(exchange(&strange.address.to_string()).is_err());
    // Our own client.
    let health = |ca: &str| {
        let address = format!("tls://{}", service.address);
        let output = rebate_command().args(["health", &address, "--tls-ca", ca]).output();
        output.expect("it runs").status.code()
    };
    assert_eq!(health(&authority.text("ca.pem")), Some(0));
    assert_eq!(health(&stranger.text("ca.pem")), Some(1));
}

#[test]
fn admin_pages_are_served_over_tls() {
    let authority = Authority::new();
    let service = Service::start(&authority, &["--listen", "127.0.0.1:0"]);
    let tunnel = Tunnel::start(&authority, None, service.admin(), Application::Http1);
    for path in ["/metrics", "/healthz", "/readyz", "/config"] {
        let (status, body) = http::page(tunnel.address, path).expect(path);
        assert!(status == 200 && !body.is_empty(), "{path}: {status}");
    }
    let plain = http::page(service.admin(), "/metrics");
    assert!(plain.is_none_or(|(status, _)| status != 200), "without TLS");
}

#[test]
fn admin_pages_can_require_certificates() {
    let authority = Authority::new();
    authority.sign("prometheus", 2100);
    let require = authority.client_auth_flags("require");
    let require: Vec<&str> = require.iter().map(String::as_str).collect();
    let args = [&require[..], &["--listen", "127.0.0.1:0"]].concat();
    let service = Service::start(&authority, &args);
    for (name, is_served) in [(Some("prometheus"), true), (None, false)] {
        let tunnel = Tunnel::start(&authority, name, service.admin(), Application::Http1);
        let page = http::page(tunnel.address, "/healthz");
        assert_eq!(page.is_some_and(|(status, _)| status == 200), is_served, "{name:?}");
    }
}

/// The rules of a store service that knows its frontends by their certificates.
const RULES: &str = "
[roles.frontend]
commands = [\"read\", \"write\", \"delete\", \"store-service\"]
[[certificates]]
name = \"CN=frontend\"
role = \"frontend\"
";

#[test]
fn a_store_service_knows_frontends_by_their_certificates() {
    let authority = Authority::new();
    for name in ["frontend", "other"] {
        authority.sign(name, 2100);
    }
    std::fs::write(authority.path("access.toml"), RULES).expect("it is written");
    let require = authority.client_auth_flags("require");
    let file = authority.text("access.toml");
    let mut args = vec!["--role", "store", "--access-file", &file];
    args.extend(require.iter().map(String::as_str));
    let store = Service::start(&authority, &args);
    let frontend = |certificate: Option<&str>| {
        let mut args = authority.upstream_flags().to_vec();
        for (key, suffix) in [("upstream_cert_file", "pem"), ("upstream_key_file", "key")] {
            let file = certificate.map(|name| authority.text(&format!("{name}.{suffix}")));
            args.extend(
                file.into_iter().flat_map(|file| ["--set".to_owned(), format!("tls.{key}={file}")]),
            );
        }
        args.extend(["--admin-listen", "127.0.0.1:0"].map(str::to_owned));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Server::rebate_serve(&store.url(), "on", &args)
    };
    let known = frontend(Some("frontend"));
    assert_eq!(known.client().set("k", b"value").expect("an answer"), "STORED");
    for (certificate, why) in [(Some("other"), "does not serve this process"), (None, "away")] {
        let unknown = frontend(certificate);
        let answer = unknown.client().set("k", b"other").expect("an answer");
        assert!(answer.starts_with("SERVER_ERROR"), "{certificate:?}: {answer}");
        let admin = unknown.admin().expect("admin pages");
        let mut last = None;
        let is_told = poll_for(TIMEOUT, || {
            last = http::page(admin, "/readyz");
            let (status, text) = last.as_ref()?;
            let text = text.to_lowercase();
            let name = store.address.to_string();
            (*status == 503 && text.contains(&name) && text.contains(why)).then_some(())
        });
        assert!(is_told.is_some(), "{certificate:?}: {last:?}");
    }
    assert_eq!(known.client().get("k").expect("an answer"), Some(b"value".to_vec()));
}

#[test]
fn a_store_service_of_another_authority_is_not_used() {
    let (authority, other) = (Authority::new(), Authority::new());
    let store = Service::start(&authority, &["--role", "store"]);
    let mut args = other.upstream_flags().to_vec();
    args.extend(["--admin-listen", "127.0.0.1:0"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let frontend = Server::rebate_serve(&store.url(), "on", &args);
    let answer = frontend.client().set("k", b"v").expect("an answer");
    assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
    let admin = frontend.admin().expect("admin pages");
    let is_told = poll_for(TIMEOUT, || {
        let (status, text) = http::page(admin, "/readyz")?;
        (status == 503 && text.contains("invalid peer certificate")).then_some(())
    });
    assert!(is_told.is_some());
}
