//! Runs `rebate reproduce` and `rebate demo` as a new user does. Their output must be complete, must say what is
//! emulated, and must open in a browser without a network. The numbers are not checked, because CI's machine is busy.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Output};

use harness::needs_memcached;
use rebate_tests::server::rebate_binary;
use serde_json::Value;

fn rebate(args: &[&str]) -> Output {
    let output = Command::new(rebate_binary()).args(args).output();
    output.unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn page(path: &Path) -> String {
    let html = std::fs::read_to_string(path).expect("the page was written");
    for outside in ["http://", "https://", "src=\"", "@import", "url("] {
        let found = html.match_indices(outside).map(|(at, _)| &html[at..(at + 60).min(html.len())]);
        let found: Vec<&str> = found
            .filter(|found| !found.contains("www.w3.org/2000/svg") && !found.starts_with("url(#"))
            .collect();
        assert!(found.is_empty(), "the page reaches outside: {found:?}");
    }
    html
}

/// Returns the page as a browser renders it.
fn rendered(path: &Path) -> String {
    let profile = tempfile::tempdir().expect("a folder");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", &format!("file://{}", path.display())])
        .output()
        .expect("chromium runs; on Debian: apt install chromium");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn reproduce_cache_writes_rows_and_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("results");
    let out = out.to_str().expect("a plain path");
    // Some configurations use the store over gRPC and some do not. The file of QPL does not exist, so its configuration
    // must be reported as left out.
    let configurations = "monolith_software,microservice_software,microservice_iaa,\
        monolith_software_direct,monolith_iaa_direct,microservice_iaa_direct,monolith_best_direct,\
        lane_iaa_direct,lane_least_latency_direct,monolith_qpl_software_direct,\
        monolith_pass_through_direct";
    let ours = ["reproduce", "cache", "--quick", "--out", out, "--sizes", "4KiB"];
    let loads = ["--loads", "200", "--rate", "200", "--duration", "200ms"];
    let what = ["--configurations", configurations, "--qpl-library", "/nowhere/libqpl.so"];
    let output = rebate(&[&ours[..], &loads, &what].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("monolith_qpl_software_direct is left out: "), "{said}");

    let json = std::fs::read_to_string(Path::new(out).join("cache.json")).expect("rows");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for field in ["name", "version", "machine", "machine_class", "command"] {
        assert!(json[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    let rows = json["rows"].as_array().expect("rows");
    let mut ids = HashSet::new();
    for row in rows {
        let id = row["id"].as_str().expect("an id");
        assert!(ids.insert(id), "{id} is there twice");
        assert!(row["published"].is_null(), "{id}: [CacheTax] gives no numbers");
        let kind = row["kind"].as_str().expect("a kind");
        let is_virtual = row["devices"].as_array().is_some_and(|devices| !devices.is_empty());
        match kind {
            "measured" => assert!(!is_virtual, "{id} has a virtual device in its path"),
            "emulated" => assert!(is_virtual, "{id} names no device"),
            "unreachable" => assert!(row["reason"].is_string(), "{id} does not say why"),
            // Without QPL, the time of the paper's monolith is ISA-L's and the difference between both.
            "computed" => assert!(id.starts_with("claim.") && id.contains(".qpl."), "{id}"),
            "predicted" => assert!(id.starts_with("paper_loop."), "{id} is not simulated"),
            other => panic!("{id}: {other}"),
        }
        assert_eq!(row["ours"].is_null(), kind == "unreachable", "{id}");
        let is_iaas = id.contains("_iaa") && !id.contains("over_monolith_iaa");
        assert!(!is_iaas || kind != "measured", "{id} passes as hardware");
    }
    for bar in json["bars"].as_array().expect("bars") {
        let id = bar["id"].as_str().expect("an id");
        assert!(ids.contains(id), "the bar {id} has no row");
        assert_eq!(bar["ours"].is_null(), bar["met"].is_null(), "{id}");
    }
    for id in [
        "latency.monolith_software.p50.4KiB.get90",
        "latency.microservice_iaa_direct.p90.4KiB.get90",
        "ratio.microservice_iaa.p50.4KiB.get90",
        "explained.microservice_iaa.p50.4KiB.get90",
        "codec_cpu_freed.monolith_iaa_direct.4KiB.get90",
        "knee.microservice_software.64KiB.get90",
        "stage.hop.decompress.p50.4KiB",
        "stage.lane.compress.p50.4KiB",
        "explained.lane_iaa_direct.p50.4KiB.get90.set",
        "carried.monolith_pass_through_direct.p50.64KiB.get90",
        "max.lane_iaa_direct.64KiB.get90",
        "ratio.lane_iaa_direct.max.64KiB.get90",
        "bar.p50.lane_iaa_direct.over_monolith_best_direct.64KiB.get90",
        "bar.max.lane_iaa_direct.over_monolith_iaa_direct.64KiB.get90",
        "bar.excess.lane_least_latency_direct.over_monolith_best_direct.p90.4KiB.get90.set",
        "break_even.lane_iaa.decompress",
        "left_out.monolith_qpl_software_direct",
    ] {
        assert!(ids.contains(id), "no row {id}");
    }

    let path = Path::new(out).join("report.html");
    assert!(page(&path).contains("emulated"));
    let dom = rendered(&path);
    let figures = ["size-grpc-get90-get", "load-direct", "stages-get90-set"];
    for id in figures.into_iter().chain(["bars-latency-direct", "stages-lane-get90-get"]) {
        assert!(dom.contains(&format!("id=\"{id}\"")), "no figure {id}");
    }
    assert!(dom.matches("<svg").count() >= 8, "figures are missing");
    assert!(!dom.contains("NaN"));
}

#[test]
fn reproduce_scheduler_holds_it_against_every_static_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a plain path");
    let args = ["reproduce", "scheduler", "--quick", "--sizes", "4KiB", "--duration", "100ms"];
    let output = rebate(&[&args[..], &["--out", out]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("scheduler.json")).expect("rows");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let row =
        |id: &str| rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}"));
    for arm in ["software", "offload", "wait", "fitted"] {
        let found = row(&format!("latency.{arm}.4KiB.load_0.7"));
        // A busy machine's runs may be invalid or overloaded. Their rows then have no number, and they give the reason.
        if found["ours"].is_null() {
            assert!(found["reason"].is_string(), "{found}");
            continue;
        }
        assert!(found["ours"].as_f64() > Some(0.0), "{found}");
        let kind = if arm == "software" { "measured" } else { "emulated" };
        assert_eq!(found["kind"], kind, "{found}");
    }
    let over = row("over_best.4KiB.load_0.1");
    assert!(over["reason"].as_str().is_some_and(|why| why.contains("in force")), "{over}");
    let judged: HashSet<&str> = json["bars"].as_array().expect("bars").iter().map(bar_id).collect();
    for id in
        ["cells_within", "statics_beaten", "over_scheduler.software", "over_best.4KiB.load_0.7"]
    {
        assert!(judged.contains(id), "{id} is not judged");
    }
    let dom = rendered(&folder.path().join("scheduler.html"));
    page(&folder.path().join("scheduler.html"));
    for wanted in
        ["Values of 4KiB", "as the scheduler says", "Each static policy over the whole grid"]
    {
        assert!(dom.contains(wanted), "no {wanted}");
    }
}

fn bar_id(bar: &Value) -> &str {
    bar["id"].as_str().unwrap_or_default()
}

/// Checks only that submitting jobs takes a core less time than compressing, which holds on any machine.
#[test]
fn reproduce_runtime_says_how_each_row_was_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a plain path");
    let args = ["reproduce", "runtime", "--quick", "--sizes", "256,8KiB", "--loads", "20000"];
    let output = rebate(&[&args[..], &["--duration", "20ms", "--out", out]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));

    let json = std::fs::read_to_string(folder.path().join("runtime.json")).expect("rows");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["name"], "runtime");
    let mut ours = HashMap::new();
    for row in json["rows"].as_array().expect("rows") {
        let id = row["id"].as_str().expect("an id");
        let kind = row["kind"].as_str().expect("a kind");
        let is_virtual = row["devices"].as_array().is_some_and(|devices| !devices.is_empty());
        // Simulated rows, and counts of rows.
        let is_simulated = ["paper_loop.", "agreement."].iter().any(|start| id.starts_with(start));
        match kind {
            "measured" => assert!(!is_virtual, "{id} has a virtual device in its path"),
            "predicted" => assert!(is_simulated, "{id} is not simulated"),
            "emulated" | "computed" | "calibrated" => {
                assert!(is_virtual || is_simulated, "{id} names no device");
            }
            "unreachable" => assert!(row["reason"].is_string(), "{id} does not say why"),
            other => panic!("{id}: {other}"),
        }
        assert!(ours.insert(id.to_owned(), row).is_none(), "{id} is there twice");
    }
    let kind = |id: &str| ours.get(id).unwrap_or_else(|| panic!("no row {id}"))["kind"].clone();
    for id in ["p50.async.web8KiB", "break_even.bluefield2.epyc7542", "throughput.software.cache1"]
    {
        assert!(["calibrated", "unreachable"].map(Value::from).contains(&kind(id)), "{id}");
    }
    for id in ["throughput.async.cache1.worker", "latency.own_codec.html.8KiB"] {
        assert_eq!(kind(id), "measured", "{id}");
    }
    assert_eq!(kind("predicted_ratio.sync.feed1.bluefield2_own"), "computed");
    for id in [
        "under_10us.sync.feed1",
        "p99.async.cache1.poll_50ns.in_flight_100",
        "throughput.async.cache1.dequeue_16.in_flight_2",
        "scaling.async.web8KiB.2_cores",
        "p99.least_latency.cache1.20000_per_s.bluefield2",
        "batch_throughput.least_host_cycles.mix.bluefield2",
        "setup.bluefield2.html.8KiB",
    ] {
        assert!(["emulated", "unreachable"].map(Value::from).contains(&kind(id)), "{id}");
    }
    // If the machine was too busy for the emulation, there is no number. The size of the number is not checked, because
    // the machine also does other work.
    let number = |id: &str| ours.get(id).unwrap_or_else(|| panic!("no row {id}"))["ours"].as_f64();
    for workload in ["cache1", "feed1"] {
        let ratio = number(&format!("throughput_ratio.async.{workload}"));
        assert!(ratio.is_none_or(|ratio| ratio > 0.0), "{workload}: {ratio:?}");
    }
    let published = ours["throughput_ratio.sync.web8KiB"]["published"].as_f64();
    assert!(published.is_some_and(|factor| (factor - 1.3986).abs() < 1e-4), "{published:?}");

    let html = page(&folder.path().join("runtime.html"));
    for id in ["sizes", "split", "cdf", "cdf-few", "throughput", "polling-interval"] {
        assert!(html.contains(&format!("id=\"{id}\"")), "no figure {id}");
    }
    assert!(html.contains("emulated") && !html.contains("NaN"));
}

#[test]
fn the_demo_compares_memcached_and_rebate_on_records() {
    let Some(()) = needs_memcached("") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demo.html");
    let report = path.to_str().expect("a plain path");
    let flags = ["--part", "records", "--records-memory", "2MiB", "--report", report, "--json"];
    let output = rebate(&[&["demo"], &flags[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["memory"], &json["services"]), (&Value::Array(Vec::new()), &Value::Null));
    let kinds = json["records"]["kinds"].as_array().expect("kinds");
    assert_eq!(kinds.len(), 4);
    for kind in kinds {
        for cache in ["memcached", "rebate"] {
            let cached = &kind[cache];
            let (items, hits) = (cached["items"].as_f64(), cached["hit_ratio"].as_f64());
            assert!(items.is_some_and(|items| items > 1_000.0), "{kind}");
            assert!(hits.is_some_and(|hits| (0.1..1.0).contains(&hits)), "{kind}");
        }
    }
    assert!(page(&path).contains("id=\"records\""));
}

#[test]
fn the_demo_compares_five_configurations_and_writes_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demo.html");
    let report = path.to_str().expect("a plain path");
    let output = rebate(&[
        "demo",
        "--part",
        "presets,services",
        "--preset",
        "twitter-c12",
        "--memory",
        "4MiB",
        "--duration",
        "300ms",
        "--warmup",
        "100ms",
        "--store",
        "embedded",
        "--report",
        report,
        "--json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["memory"][0]["store"], "embedded");
    let points = json["services"]["points"].as_array().expect("points");
    assert_eq!(points.len(), 10);
    for point in points {
        let id = point["id"].as_str().expect("an id");
        assert!(point["p50_us"].as_f64().is_some_and(|us| us > 0.0), "{id}");
        assert_eq!(point["emulated"], id.contains("_iaa"), "{id}");
    }
    let html = page(&path);
    assert!(html.contains("id=\"configurations\"") && html.contains("id=\"stages\""));
}

#[test]
fn an_impossible_run_is_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a plain path");
    for (args, valid) in [
        (["--sizes", "3MiB"], "1KiB to 512KiB"),
        (["--gets", "101"], "0 to 100"),
        (["--runs", "0"], "1 to 100"),
        (["--rate", "0"], "1 to 1000000"),
        (["--duration", "1ms"], "100ms to 600s"),
        (["--configurations", "lane_qat"], "valid are monolith_software, "),
        (["--parts", "all"], "possible values: sizes, loads, bars"),
        (["--parts", "mix"], "possible values: sizes, loads, bars"),
    ] {
        let output = rebate(&["reproduce", "cache", "--out", out, args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(valid), "{}", text(&output.stderr));
    }
    for (args, valid) in [
        (["--sizes", "8"], "16 to 1MiB"),
        (["--loads", "10"], "1000 to 10000000"),
        (["--duration", "1ms"], "10ms to 10s"),
        (["--gets", "90"], "unexpected argument '--gets'"),
        (
            ["--parts", "bars"],
            "possible values: sizes, modes, web, polling, paper, cores, loads, mix",
        ),
    ] {
        let output = rebate(&["reproduce", "runtime", "--out", out, args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(valid), "{}", text(&output.stderr));
    }
    for (args, valid) in [
        (["--sizes", "64"], "256 to 256KiB"),
        (["--loads", "10"], "unexpected argument '--loads'"),
        (["--duration", "1ms"], "100ms to 60s"),
    ] {
        let output = rebate(&["reproduce", "scheduler", "--out", out, args[0], args[1]]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(valid), "{}", text(&output.stderr));
    }
    assert_eq!(rebate(&["reproduce", "nothing", "--out", out]).status.code(), Some(2));
    assert_eq!(rebate(&["reproduce", "cache"]).status.code(), Some(2));
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let below = file.join("below");
    let output = rebate(&["reproduce", "cache", "--out", below.to_str().expect("a plain path")]);
    assert_eq!(output.status.code(), Some(2), "a folder that cannot be made");
}
