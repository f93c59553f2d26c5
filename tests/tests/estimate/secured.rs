//! Tests `rebate estimate` and `rebate dict` against servers with TLS and with passwords.

use std::fs;
use std::process::Output;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rebate_tests::{Server, TIMEOUT, rebate_command};
use tempfile::TempDir;

use super::{fill, run};

/// A folder with an authority and a certificate for this host.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        fs::write(folder.path().join(name), text).expect("a file");
    };
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let params = CertificateParams::new(names).expect("names");
    let server_key = key();
    let certificate = params.signed_by(&server_key, &issuer).expect("a certificate");
    write("ca.pem", issuer.pem());
    write("server.pem", certificate.pem() + &server_key.serialize_pem());
    folder
}

/// Starts a server with a plain listener and a TLS listener. Returns the address of the second.
fn secured(folder: &TempDir) -> (Server, String) {
    let cert = format!("tls.cert_file={}", folder.path().join("server.pem").display());
    let listen = "127.0.0.1:0,tls://127.0.0.1:0";
    let mut server = Server::rebate(&["serve", "--listen", listen, "--set", &cert]);
    let printed = server
        .await_ready(TIMEOUT, "the TLS listener", |process| process.printed("listening on tls://"));
    (server, format!("tls://{}", printed.expect("it listens")))
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_with_tls_is_read() {
    let folder = certificates();
    let (server, address) = secured(&folder);
    fill(&server);
    let ca = path(&folder, "ca.pem");
    let output = run(&[&address, "--tls-ca", &ca, "--seconds", "1", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let listed = rebate_command().args(["dict", "list", &address, "--tls-ca", &ca]).output();
    let listed = listed.expect("the binary starts");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("user:*:data"), "{listed:?}");
}

#[test]
fn tls_without_an_authority_names_the_flag() {
    let folder = certificates();
    let (_server, address) = secured(&folder);
    let output = run(&[&address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("--tls-ca"), "{}", error_of(&output));
}

#[test]
fn tls_to_a_server_without_it_is_an_error() {
    let folder = certificates();
    let server = Server::memcached(&[]);
    let address = format!("tls://{}", server.addr());
    let output = run(&[&address, "--tls-ca", &path(&folder, "ca.pem")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("no TLS"), "{}", error_of(&output));
}

/// Starts both servers with passwords, and fills them.
fn with_passwords(folder: &TempDir) -> [Server; 2] {
    fs::write(folder.path().join("users"), "web:secret\n").expect("a file");
    let users = path(folder, "users");
    let servers =
        [Server::memcached(&["-Y", &users]), Server::rebate_memcached(&["--auth-file", &users])];
    for server in &servers {
        let mut client = server.client();
        assert_eq!(client.set("login", b"web secret"), Ok("STORED".to_owned()));
        for n in 0..300 {
            let stored = client.set(&format!("user:{n}"), super::record(n).as_bytes());
            assert_eq!(stored, Ok("STORED".to_owned()));
        }
    }
    servers
}

#[test]
fn a_password_opens_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    for server in with_passwords(&folder) {
        let address = server.addr().to_string();
        let output = run(&[&address, "--seconds", "1"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(error_of(&output).contains("asks for a password"), "{}", error_of(&output));
        let users = path(&folder, "users");
        let output = run(&[&address, "--seconds", "1", "--auth-file", &users, "--json"]);
        assert!(output.status.success(), "{output:?}");
        fs::write(folder.path().join("wrong"), "web:guess\n").expect("a file");
        let output = run(&[&address, "--auth-file", &path(&folder, "wrong")]);
        assert!(error_of(&output).contains("refuses the login"), "{}", error_of(&output));
    }
}

#[test]
fn a_server_without_passwords_stores_no_login() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("users"), "web:secret\n").expect("a file");
    let server = Server::memcached(&[]);
    fill(&server);
    let sets = server.stat("cmd_set");
    let address = server.addr().to_string();
    let output = run(&[&address, "--seconds", "1", "--auth-file", &path(&folder, "users")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.stat("cmd_set"), sets);
}
