//! Tests rules, passwords, logins and quotas without a server.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use units::Nanos;

use super::network::Network;
use super::origin::Peer;
use super::quota::{Allowance, Bucket, Usage, WAIT_MAX};
use super::rules::Grant;
use super::*;

const FILE: &str = r#"
[roles.web]
commands = ["read", "write"]
key_prefix = "web:"
requests_per_s = 100
[roles.operator]
commands = ["all"]
[[users]]
name = "alice"
password = "longenough"
role = "web"
[[networks]]
cidr = "10.0.0.0/8"
role = "web"
[[networks]]
cidr = "10.1.0.0/16"
role = "operator"
[[unix]]
uid = 7
role = "operator"
[[certificates]]
name = "CN=web"
role = "web"
"#;

fn read(text: &str) -> Result<Rules, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.toml");
    std::fs::write(&path, text).unwrap();
    file::read(&path, &Hasher::new(), &Rules::default())
}

fn identity(rules: &Rules, origin: &Origin) -> Option<String> {
    rules.of_origin(origin).map(|grant: &Arc<Grant>| grant.identity.clone())
}

#[test]
fn the_most_certain_rule_names_a_client() {
    let rules = read(FILE).unwrap();
    let from = |address: &str| Origin::from_address(address.parse().unwrap(), 1);
    let name = |origin: &Origin| identity(&rules, origin);
    assert_eq!(name(&from("10.2.0.1")).as_deref(), Some("network 10.0.0.0/8"));
    assert_eq!(name(&from("::ffff:10.1.0.1")).as_deref(), Some("network 10.1.0.0/16"));
    assert_eq!(name(&from("127.0.0.1")), None);
    let certified = from("10.1.0.1").with_certificate(["DNS:x".into(), "CN=web".into()]);
    assert_eq!(name(&certified).as_deref(), Some("certificate CN=web"));
    let process = |uid| Origin { peer: Some(Peer { uid, gid: 1 }), ..Origin::default() };
    assert_eq!(name(&process(7)).as_deref(), Some("unix uid=7 gid=any"));
    assert_eq!(name(&process(8)), None);
}

#[test]
fn networks_contain_their_addresses_only() {
    for (network, address, is_inside) in [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.1.2.3/32", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "10.255.255.255", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "11.0.0.0", false),
        ("10.1.2.3/32", "10.1.2.2", false),
        ("0.0.0.0/0", "255.1.2.3", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "::1", true),
        ("::1/128", "::1", true),
        ("fd00::/8", "fd12::1", true),
        ("fd00::/8", "fe00::1", false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let network: Network = network.parse().unwrap();
        assert_eq!(network.contains(address), is_inside, "{network:?} {address}");
    }
    for text in ["", "10.0.0.0", "10.0.0.0/33", "::1/129", "x/8", "10.0.0.0/-1", "10.0.0.0/8 "] {
        assert!(text.parse::<Network>().is_err(), "{text:?}");
    }
}

#[test]
fn a_file_with_a_mistake_is_refused() {
    let role = "[roles.r]\ncommands = [\"read\"]\n";
    for (text, said) in [
        (
            "[roles.r]\ncommands = [\"reed\"]",
            "role r: commands: \"reed\" is unknown; give any of all, read",
        ),
        ("[roles.r]\ncommands = [\"flush\"]\nkey_prefix = \"a\"", "act on all keys"),
        ("[roles.r]\ncommands = []\ntenant = 0", "tenant: give a number from 1 to 32767"),
        ("[roles.r]\ncommands = []\nrequests_per_s = 0", "requests_per_s: give a number from 1"),
        ("[roles.r]\ncommands = []\nx = 1", "unknown field `x`"),
        (
            "[[users]]\nname = \"a\"\npassword = \"12345678\"\nrole = \"r\"",
            "user a: there is no role \"r\"",
        ),
        ("[anonymus]\nrole = \"r\"", "unknown field `anonymus`"),
    ] {
        let problem = read(text).map(drop).unwrap_err();
        assert!(problem.contains(said), "{text}: {problem}");
    }
    for (user, said) in [
        ("name = \"a\"\npassword = \"1234567\"", "give at least 8 bytes"),
        ("name = \"a\"\npassword = \"1234 5678\"", "no blank"),
        ("name = \"a:\"\npassword = \"12345678\"", "without blanks and colons"),
        ("name = \"a\"", "give either password or password_sha256"),
        ("name = \"a\"\npassword_sha256 = \"salt:12\"", "is not SALT:HEX"),
    ] {
        let text = format!("{role}[[users]]\n{user}\nrole = \"r\"\n");
        let problem = read(&text).map(drop).unwrap_err();
        assert!(problem.contains(said) && !problem.contains("1234567"), "{text}: {problem}");
    }
    let twice = format!("{role}{0}{0}", "[[networks]]\ncidr = \"::/0\"\nrole = \"r\"\n");
    assert!(read(&twice).map(drop).unwrap_err().contains("network ::/0 is there twice"));
}

#[test]
fn a_salted_password_is_verified() {
    let hasher = Hasher::new();
    // printf '%s%s' salt secret | sha256sum
    let hex: String = ring::digest::digest(&ring::digest::SHA256, b"saltsecret")
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let secret = hasher.salted(&format!("salt:{hex}")).unwrap();
    assert!(hasher.verify(&secret, b"secret"));
    assert!(!hasher.verify(&secret, b"saltsecret") && !hasher.verify(&secret, b""));
    assert!(hasher.verify(&hasher.plain(b"secret"), b"secret"));
    assert!(!hasher.verify(&hasher.plain(b"secret"), b"secre"));
}

#[test]
fn guesses_are_delayed_and_then_not_checked() {
    let logins = Logins::default();
    let origin = Origin::from_address("192.0.2.1".parse().unwrap(), 1);
    let now = Nanos::secs(100);
    let attempts: Vec<_> = (0..40).map(|_| logins.attempt(&origin, b"alice", now)).collect();
    let at_once = attempts.iter().filter(|attempt| attempt.delay.is_zero()).count();
    let checked = attempts.iter().filter(|attempt| attempt.may_check).count();
    assert_eq!((at_once, checked), (10, 20));
    // Several users of a host may share a slot, but not all.
    let others = (0..8_u8).filter(|user| logins.attempt(&origin, &[*user], now).delay.is_zero());
    assert!(others.count() > 0, "another user");
    let later = logins.attempt(&origin, b"alice", Nanos::secs(104));
    assert!(later.may_check && later.delay.is_zero());
}

#[test]
fn right_passwords_are_never_delayed() {
    let logins = Logins::default();
    let origin = Origin::from_address("192.0.2.1".parse().unwrap(), 1);
    for _ in 0..1_000 {
        let attempt = logins.attempt(&origin, b"alice", Nanos::secs(100));
        assert!(attempt.may_check && attempt.delay.is_zero());
        attempt.succeeded();
    }
}

/// Returns how many requests are admitted within `seconds` for clients that each ask again as soon as they may.
fn admitted(rate: u64, workers: usize, clients: usize, seconds: u64) -> u64 {
    let usage = Arc::<Usage>::default();
    let allowances: Vec<_> = (0..workers).map(|_| Allowance::new(Arc::clone(&usage))).collect();
    let end = Nanos::secs(1_000 + seconds);
    let mut due: Vec<Nanos> = vec![Nanos::secs(1_000); workers * clients];
    let mut admitted = 0;
    loop {
        let (index, now) = due.iter().copied().enumerate().min_by_key(|(_, due)| *due).unwrap();
        if now >= end {
            return admitted;
        }
        match allowances[index % workers].request(rate, || now) {
            Some(wait) if wait.is_zero() => {
                admitted += 1;
                due[index] = now + Nanos::micros(20);
            }
            Some(wait) => {
                admitted += u64::from(now + Nanos::from(wait) < end);
                due[index] = now + Nanos::from(wait);
            }
            None => due[index] = now + Nanos::millis(100),
        }
    }
}

#[test]
fn quotas_hold_over_all_workers() {
    for (rate, workers, clients) in [(50, 1, 1), (1_000, 4, 3), (20_000, 4, 8), (100, 4, 50)] {
        let (found, wanted) = (admitted(rate, workers, clients, 10), rate * 10);
        let error = found.abs_diff(wanted) as f64 / wanted as f64;
        assert!(error < 0.05, "{found} of {wanted} with {workers} workers of {clients}");
    }
}

#[test]
fn bytes_are_paid_before_the_next_request() {
    let allowance = Allowance::new(Arc::default());
    let start = Nanos::secs(10);
    assert_eq!(allowance.bytes_owed(start), Some(Duration::ZERO));
    allowance.spend_bytes(1_000_000, 1_000_000, || start);
    let owed = allowance.bytes_owed(start).unwrap();
    assert!((0.85..=0.95).contains(&owed.as_secs_f64()), "{owed:?}");
    allowance.spend_bytes(1_000_000, 1_000_000, || start);
    assert_eq!(allowance.bytes_owed(start), None, "too long to wait");
    assert!(allowance.bytes_owed(start + Nanos::secs(1)).is_some());
}

proptest! {
    #[test]
    fn a_bucket_never_gives_more_than_its_rate(
        rate in 1_u64..100_000,
        steps in proptest::collection::vec((1_u64..50, 0_u64..20_000_000), 1..200),
    ) {
        let (bucket, start) = (Bucket::default(), Nanos::secs(50));
        let (mut now, mut taken) = (start, 0);
        for (count, pause_ns) in steps {
            now += Nanos(pause_ns);
            if let Some(wait) = bucket.take(count, rate, now, WAIT_MAX) {
                taken += count;
                let until_s = (now.0 + Nanos::from(wait).0 - start.0) as f64 / 1e9;
                let most = (until_s + 0.1) * rate as f64 + 1.0 + 1e-3 * taken as f64;
                prop_assert!(taken as f64 <= most, "{taken} after {until_s} s at {rate}");
            }
        }
    }

    #[test]
    fn any_text_is_rules_or_refused(text in ".{0,200}") {
        let _ = read(&text);
    }
}
