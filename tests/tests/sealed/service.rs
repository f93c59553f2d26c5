//! A service with the same keys: a frontend sends it a value once, to be compressed and sealed, or opened and
//! decompressed. Values are the same as without it, whatever the service lacks and whenever it dies.

use std::path::PathBuf;

use rebate_tests::Server;
use rebate_tests::load::Load;

use super::services::{Service, metrics};
use super::{CLOSED, Frontend, Keys, values};

/// A compression service with keys, which listens on a lane and on TCP.
struct Sealing {
    service: Service,
    lane: PathBuf,
}

impl Sealing {
    fn start(keys: &Keys, args: &[&str]) -> Self {
        let lane = keys.log("lane");
        let named = format!("values.keys={}", keys.path().display());
        let place = lane.display().to_string();
        let ours = ["--lane-listen", &place, "--insecure", "--set", &named];
        Self { service: Service::start("compression", 0, &[&ours[..], args].concat()), lane }
    }

    fn address(&self, transport: &str) -> String {
        match transport {
            "lane" => format!("lane:{}", self.lane.display()),
            _ => self.service.grpc.to_string(),
        }
    }
}

/// Starts a frontend in front of this store that sends every job to the service.
fn frontend(store: &Server, keys: &Keys, address: &str, args: &[&str]) -> Frontend {
    let offload = ["--policy", "bounded-offload", "--set", "runtime.offload_bytes_min=0"];
    let service = ["--compression", address, "--set", "runtime.compression_ciphers=true"];
    let all = [&offload[..], &service, &["--codec", "deflate"], &CLOSED, args].concat();
    Frontend::sealing(store, keys, &all)
}

/// Returns the sum of the samples whose names have all of these parts.
fn sum(frontend: &Frontend, parts: &[&str]) -> f64 {
    let page = metrics(frontend.admin());
    let names = page.iter().filter(|(name, _)| parts.iter().all(|part| name.contains(part)));
    names.map(|(_, value)| *value).sum()
}

/// Returns how many chains of this kind the service ran in one trip.
fn one_trip(frontend: &Frontend, kind: &str) -> f64 {
    let all = sum(frontend, &["rebate_chains_total{", kind]);
    all - sum(frontend, &["rebate_chains_total{", kind, "device=\"software\""])
}

/// Returns how many ciphers the service ran.
fn ciphers_away(frontend: &Frontend) -> f64 {
    let all = sum(frontend, &["rebate_jobs_total{", "crypt\"", "outcome=\"done\""]);
    all - sum(frontend, &["rebate_jobs_total{", "crypt\"", "outcome=\"done\"", "\"software\""])
}

/// Sets and gets every kind of value through the frontend, and gets them through one without a service.
fn check_values(ours: &Frontend, alone: &Frontend) {
    let (mut client, mut other) = (ours.server.client(), alone.server.client());
    for round in 0..20 {
        for (key, value) in values() {
            let key = format!("{key}_{round}");
            assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
            assert_eq!(client.get(&key), Ok(Some(value.clone())), "{key}");
            assert_eq!(other.get(&key), Ok(Some(value.clone())), "{key} without a service");
            assert_eq!(other.set(&key, &value).as_deref(), Ok("STORED"));
            assert_eq!(client.get(&key), Ok(Some(value)), "{key} of a frontend without a service");
        }
    }
}

#[test]
fn values_are_compressed_and_sealed_in_one_trip() {
    let (store, keys) = (Server::memcached(&["-m", "256"]), Keys::new(1, &[1]));
    let sealing = Sealing::start(&keys, &["--set", "server.ciphers=true"]);
    let alone = Frontend::sealing(&store, &keys, &CLOSED);
    for transport in ["lane", "grpc"] {
        let ours = frontend(&store, &keys, &sealing.address(transport), &[]);
        check_values(&ours, &alone);
        for kind in ["compress+encrypt", "decrypt+decompress"] {
            let chains = one_trip(&ours, kind);
            // Two or three of the kinds of values shrink. The first results may run in software.
            assert!(chains >= 30.0, "{transport}: {chains} of {kind}");
        }
        assert!(ciphers_away(&ours) >= 200.0, "{transport}: {}", ciphers_away(&ours));
        assert_eq!(sum(&ours, &["rebate_device_corrupt_total"]), 0.0, "{transport}");
        // With chains off, each op makes its own trip, and the values are the same.
        let apart = frontend(
            &store,
            &keys,
            &sealing.address(transport),
            &["--set", "runtime.chains=false"],
        );
        check_values(&apart, &alone);
        assert_eq!(sum(&apart, &["rebate_chains_total{"]), 0.0, "{transport}");
        assert!(ciphers_away(&apart) >= 200.0, "{transport}: {}", ciphers_away(&apart));
    }
}

#[test]
fn a_service_without_the_key_compresses_and_seals_nothing() {
    let (store, keys) = (Server::memcached(&["-m", "256"]), Keys::new(2, &[1, 2]));
    let (other, few) = (Keys::new(1, &[1]), Keys::new(1, &[1]));
    other.write_text(&format!(
        "active = 2\n[[key]]\nid = 2\nsecret = \"{}\"\n",
        rebate_tests::payload::base64(&[9; 32])
    ));
    let alone = Frontend::sealing(&store, &keys, &CLOSED);
    let ciphers = ["--set", "server.ciphers=true"];
    let none: [&str; 0] = [];
    let lacks = [
        ("the key", Sealing::start(&few, &ciphers)),
        ("the same secret", Sealing::start(&other, &ciphers)),
        ("leave to use it", Sealing::start(&keys, &none)),
    ];
    for (what, sealing) in &lacks {
        for transport in ["lane", "grpc"] {
            let ours = frontend(&store, &keys, &sealing.address(transport), &[]);
            check_values(&ours, &alone);
            assert_eq!(ciphers_away(&ours), 0.0, "{transport}: a service that lacks {what}");
            let compressed = sum(&ours, &["rebate_jobs_total{op=\"compress\"", "outcome=\"done\""]);
            let here = sum(
                &ours,
                &["rebate_jobs_total{op=\"compress\"", "outcome=\"done\"", "\"software\""],
            );
            assert!(compressed - here >= 30.0, "{transport}, {what}: {here} of {compressed}");
            assert_eq!(sum(&ours, &["rebate_device_lost_total"]), 0.0, "{transport}: {what}");
        }
    }
}

#[test]
fn a_sealing_service_that_is_killed_costs_no_value() {
    let (store, keys) = (Server::memcached(&["-m", "256"]), Keys::new(1, &[1]));
    let args = ["--set", "server.ciphers=true"];
    let mut sealing = Sealing::start(&keys, &args);
    let short = ["--set", "runtime.job_timeout_ms=100"];
    let ours = frontend(&store, &keys, &sealing.address("lane"), &short);
    let load = Load::start(ours.server.addr());
    load.await_good(200);
    for _ in 0..5 {
        sealing.service.stop().expect("it stands still");
        load.await_good(50);
        sealing.service.go_on();
        load.await_good(50);
        sealing.service.kill();
        load.await_good(50);
        sealing = Sealing::start(&keys, &args);
        load.await_good(200);
    }
    assert_eq!(load.missed(), (0, 0), "errors, and values that were stored and not there");
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(one_trip(&ours, "compress+encrypt") > 0.0);
}
