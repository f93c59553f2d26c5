//! Tests that the compiled-in profiles can be read, and that a wrong file gets an error that states the mistake.

use super::*;

const IAA: &str = include_str!("../../../specs/devices/iaa.toml");

fn iaa() -> DeviceProfile {
    DeviceProfile::find("iaa").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_profile_file_is_compiled_in_and_reads() {
    for name in DeviceProfile::names() {
        let profile = DeviceProfile::find(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, name);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/devices");
    for file in std::fs::read_dir(folder).expect("the folder exists") {
        let name = file.expect("an entry").file_name().into_string().expect("a plain name");
        let stem = name.strip_suffix(".toml").expect("only profiles are here");
        assert!(DeviceProfile::names().any(|known| known == stem), "{name}");
    }
}

#[test]
fn published_points_are_met_and_lines_drawn_between_and_beyond() {
    let mut profile = iaa();
    assert_eq!(decompress(&profile).latency(4_096), Nanos(2_999));
    profile.huffman.as_mut().expect("it compresses").value = Huffman::Fixed;
    let compress = profile.compress().expect("it compresses");
    assert_eq!(compress.latency(4_096), Nanos(3_250));
    assert_eq!(compress.latency(16_384), Nanos(9_400));
    assert_eq!(compress.latency(10_240), Nanos((3_250 + 9_400) / 2));
    // The rate is 2.0 GB/s beyond the last point.
    let beyond = compress.latency(16_384 + 20_000).0 - 9_400;
    assert!((9_900..=10_100).contains(&beyond), "{beyond}");
    assert_eq!(compress.latency(0), compress.latency(64));
    assert_eq!(compress.interval(8_192), Nanos(2 * 1_374));
}

#[test]
fn variants_take_the_ends_of_the_ranges_and_say_so() {
    let at = |variant, bytes| {
        let profile = iaa().variant(variant);
        let compress = profile.compress().expect("it compresses").latency(bytes);
        (compress, decompress(&profile).latency(bytes), profile.submit(bytes))
    };
    for bytes in [100, 1_000, 4_096, 10_000, 65_536, 1 << 20] {
        let [low, stated, high] =
            [Variant::Low, Variant::Stated, Variant::High].map(|variant| at(variant, bytes));
        assert!(low.0 < stated.0 && stated.0 < high.0, "{bytes}: {low:?} {stated:?} {high:?}");
        assert!(low.1 <= stated.1 && stated.1 <= high.1, "{bytes}: {low:?} {stated:?} {high:?}");
        assert!(low.2 < stated.2 && stated.2 < high.2);
    }
    assert_eq!(iaa().variant(Variant::High).name, "iaa-high");
    assert_eq!(iaa().variant(Variant::Stated), iaa());
}

#[test]
fn the_low_dynamic_curve_is_the_fixed_one() {
    let low = iaa().variant(Variant::Low);
    let fixed = iaa().compress.and_then(|compress| compress.fixed).expect("published");
    for point in &fixed.latency {
        let compress = low.compress().expect("it compresses");
        assert_eq!(compress.latency(point.bytes), Nanos(point.ns.value));
    }
}

#[test]
fn errors_name_the_key_the_value_and_the_range() {
    let broken = [
        ("window_log2]\nvalue = 12", "window_log2]\nvalue = 40", "window_log2: value is 40; 9 to"),
        ("engines]\nvalue = 8", "engines]\nvalue = 0", "accelerator.engines: value is 0; 1 to"),
        ("bytes = 16384", "bytes = 4096", "compress.fixed.latency: bytes are [64, 4096, 4096]"),
        ("ns.value = 3250", "ns.value = 99000", "range is [3230, 3571]"),
        ("expected_poll_ns]", "expected_poll_us]", "expected_poll_us"),
        (
            "bytes = 64\nns.value = 107",
            "bytes = 64\nns.value = 7",
            "accelerator.submit at 64 bytes",
        ),
        ("kind = \"published\"", "kind = \"guessed\"", "guessed"),
        ("pages_in_flight = 1\n", "pages_in_flight = -1\n", "line"),
        ("from_us = 1\nto_us = 10", "from_us = 10\nto_us = 10", "fault_tail.faults: to_us is 10"),
    ];
    for (old, new, expected) in broken {
        assert!(IAA.contains(old), "{old:?} is in the file");
        let error = DeviceProfile::parse(&IAA.replacen(old, new, 1), "x.toml");
        let error = error.expect_err(expected).to_string();
        assert!(error.contains("x.toml") && error.contains(expected), "{error}");
    }
    let error = DeviceProfile::find("iaa9").expect_err("unknown").to_string();
    assert!(error.contains("iaa9") && error.contains("known are iaa"), "{error}");
    let error = DeviceProfile::find("/nonexistent.toml").expect_err("unreadable").to_string();
    assert!(error.contains("/nonexistent.toml"), "{error}");
}

#[test]
fn a_number_without_its_standing_is_refused() {
    let refused = |change: fn(&mut DeviceProfile)| {
        let mut profile = iaa();
        change(&mut profile);
        check::profile(&profile).expect_err("refused")
    };
    let accelerator = |p: &mut DeviceProfile| p.accelerator.take().expect("it is one");
    for source in ["", "none"] {
        let mut profile = iaa();
        let mut changed = accelerator(&mut profile);
        changed.engines.source = source.into();
        profile.accelerator = Some(changed);
        let problem = check::profile(&profile).expect_err("refused");
        assert!(problem.contains("accelerator.engines: source is"), "{problem}");
    }
    let tail = |p: &mut DeviceProfile| p.fault_tail.take().expect("published").jobs_per_million;
    for (kind, range) in [(Kind::Assumed, "range is missing"), (Kind::Calibrated, "calibrated")] {
        let mut profile = iaa();
        let figure = Figure { kind, range: None, ..tail(&mut profile) };
        profile.late_after_ns = figure;
        let problem = check::profile(&profile).expect_err("refused");
        assert!(problem.contains(range), "{problem}");
    }
    let missing = refused(|p| p.late_after_ns.assumption = None);
    assert!(missing.contains("late_after_ns: assumption is"), "{missing}");
    let empty = refused(|p| p.decompress.as_mut().expect("has").batch.clear());
    assert!(empty.contains("decompress.batch"), "{empty}");
    let falling = refused(|p| {
        p.decompress.as_mut().expect("has").latency[2].ns.range = Some([1, 40_000]);
    });
    assert!(falling.contains("decompress.latency: ns (Low)"), "{falling}");
}

#[test]
fn a_profile_that_could_not_be_followed_is_refused() {
    let refused = |change: fn(&mut DeviceProfile)| {
        let mut profile = find("epyc7542-isal");
        change(&mut profile);
        check::profile(&profile).expect_err("refused")
    };
    let missing = refused(|p| p.window_log2 = None);
    assert!(missing.contains("window_log2 is missing"), "{missing}");
    assert!(refused(|p| p.huffman = None).contains("huffman"));
    assert!(refused(|p| p.decrypt = None).contains("encrypt, decrypt: one is missing"));
    let ratio = refused(|p| dynamic(p).ratio.truncate(1));
    assert!(ratio.contains("compress.dynamic.ratio: output_percent are [1]"), "{ratio}");
    let batch = refused(|p| dynamic(p).batch = find("iaa").decompress.expect("has").batch);
    assert!(batch.contains("a core does one job after another"), "{batch}");
    let nothing = refused(|p| {
        (p.compress, p.decompress, p.encrypt, p.decrypt) = (None, None, None, None);
    });
    assert!(nothing.contains("it has no op"), "{nothing}");
    let accelerator = refused(|p| p.accelerator = find("bluefield2-arm").accelerator);
    assert!(
        accelerator.contains("compress.dynamic.batch: pages_in_flight are []"),
        "{accelerator}"
    );
    let mut slow = find("bluefield2");
    let accelerator = slow.accelerator.as_mut().expect("it is one");
    accelerator.submit.truncate(1);
    accelerator.submit[0].ns.value = 5_000;
    accelerator.submit[0].ns.range = None;
    let problem = check::profile(&slow).expect_err("refused");
    assert!(problem.contains("at least the submission in it, 5000"), "{problem}");
    let mut dsa = find("dsa");
    let accelerator = dsa.accelerator.as_mut().expect("it is one");
    accelerator.submit_batch[0].jobs = 2;
    let problem = check::profile(&dsa).expect_err("refused");
    assert!(problem.contains("submit_batch: jobs are [2, 8, 128]; from 1 on"), "{problem}");
}

/// The expected numbers are computed by hand from the published points.
#[test]
fn hand_computed_points_of_every_profile() {
    let compress = |name: &str, bytes| find(name).compress().expect("has").latency(bytes);
    let read = |name: &str, bytes| decompress(&find(name)).latency(bytes);
    assert_eq!(read("iaa", 4_096), Nanos(2_999));
    // 9 us + (16384 - 4096) * 25 us / 61440.
    assert_eq!(compress("qat-4xxx", 16_384), Nanos(14_000));
    assert_eq!(read("qat-4xxx", 65_536), Nanos(21_000));
    // 27 us + 145 us / 5.
    assert_eq!(compress("qat-8970", 16_384), Nanos(56_000));
    assert_eq!(read("qat-8970", 4_096), Nanos(14_000));
    let dsa = find("dsa");
    let copy = dsa.copy.as_ref().expect("has");
    assert_eq!((copy.latency(4_096), copy.interval(8_192)), (Nanos(1_737), Nanos(290)));
    // [OffloadSched] table 4.2: sync offload without the time that is not compression, 26.50 - 16.55 us.
    assert_eq!(compress("bluefield2", 8_192), Nanos(9_948));
    // 2241 ns of setup, plus 9285 ns divided by 1.25.
    assert_eq!(compress("bluefield2-arm", 8_192), Nanos(9_669));
    // Software without the time that is not compression: 36.97 - 16.55 us.
    assert_eq!(compress("epyc7542-isal", 8_192), Nanos(20_414));
    assert_eq!(find("bluefield2").submit(8_192), Nanos(663));
    assert_eq!(find("epyc7542-isal").submit(8_192), Nanos(0));
    let attachments = ["bluefield2", "bluefield2-arm"]
        .map(|name| find(name).accelerator.map(|accelerator| accelerator.attachment.value));
    assert_eq!(attachments, [Some(Attachment::OffChip), Some(Attachment::OnChip)]);
}

#[test]
fn the_ratio_scales_time_and_pace() {
    let profile = find("epyc7542-isal");
    let compress = profile.compress().expect("has");
    let fixed = compress.latency(64);
    let scaled = |percent| compress.latency_at(8_192, percent) - fixed;
    assert_eq!(scaled(100.0), compress.latency(8_192) - fixed);
    let exact = (compress.latency(8_192) - fixed).0 as f64 * 0.77;
    assert!((scaled(22.0).0 as f64 - exact).abs() <= 1.0);
    assert_eq!((scaled(0.0), scaled(300.0)), (scaled(1.0), scaled(100.0)));
    assert_eq!(compress.latency_at(64, 1.0), fixed);
    let qat = find("qat-4xxx");
    let compress = qat.compress().expect("has");
    assert_eq!(
        (compress.interval(4_096), compress.interval_at(4_096, 100.0)),
        (Nanos(859), Nanos(3_007))
    );
    assert_eq!(find("bluefield2").compress().expect("has").latency_at(8_192, 3.0), Nanos(9_948));
}

#[test]
fn the_first_submissions_cost_together_what_the_batch_curve_says() {
    let dsa = find("dsa");
    let total = |jobs: u64| (1..=jobs).map(|nth| dsa.submit_nth(64, nth).0).sum::<u64>();
    assert_eq!((total(1), dsa.submit(64)), (106, Nanos(106)));
    assert!((8 * 19 - 4..=8 * 19 + 4).contains(&total(8)), "{}", total(8));
    assert!((128 * 19 - 64..=128 * 19 + 64).contains(&total(128)), "{}", total(128));
    assert_eq!(dsa.submit_nth(64, 1_000), Nanos(19));
    let iaa = iaa();
    assert_eq!(iaa.submit_nth(64, 8), iaa.submit(64), "no curve");
}

#[test]
fn page_faults_are_drawn_by_the_buckets() {
    let mut tail = iaa().fault_tail.expect("published");
    tail.jobs_per_million.value = 500_000;
    let mut random = units::Prng::new(3);
    let draws: Vec<_> = (0..20_000).map(|_| tail.draw(&mut random)).collect();
    let waits: Vec<_> = draws.into_iter().filter(|wait| *wait > Nanos(0)).collect();
    assert!((9_700..10_300).contains(&waits.len()), "{}", waits.len());
    let within = |wait: &&Nanos| **wait < Nanos::micros(10);
    let short = waits.iter().filter(within).count() as f64 / waits.len() as f64;
    assert!((0.96..0.98).contains(&short), "25206 of 25965: {short}");
    assert!(waits.iter().all(|wait| (Nanos::micros(1)..Nanos::micros(556)).contains(wait)));
    tail.jobs_per_million.value = 0;
    assert_eq!(tail.draw(&mut random), Nanos(0));
}

fn find(name: &str) -> DeviceProfile {
    DeviceProfile::find(name).unwrap_or_else(|error| panic!("{error}"))
}

fn decompress(profile: &DeviceProfile) -> &OpProfile {
    profile.decompress.as_ref().expect("it decompresses")
}

fn dynamic(profile: &mut DeviceProfile) -> &mut OpProfile {
    let dynamic = profile.compress.as_mut().and_then(|compress| compress.dynamic.as_mut());
    dynamic.expect("it compresses")
}

#[test]
fn successions_are_two_ops_that_the_device_has() {
    let qat = include_str!("../../../specs/devices/qat-4xxx.toml");
    let profile = find("qat-4xxx");
    let chains = profile.chains.as_ref().expect("it has chains");
    let text: Vec<_> = chains.successions.value.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["compress > encrypt", "decrypt > decompress"]);
    assert_eq!(chains.hand_over(64), Nanos(205));
    let problem = |from: &str, to: &str| {
        let changed = qat.replacen(from, to, 1);
        assert_ne!(changed, qat);
        DeviceProfile::parse(&changed, "changed").expect_err("it is wrong").to_string()
    };
    let pair = "\"compress > encrypt\"";
    let said = problem(pair, "\"compress > rpc\"");
    assert!(said.contains("compress > rpc; both ops need their costs"), "{said}");
    for other in ["\"compress encrypt\"", "\"compress > seal\"", "\"\""] {
        let said = problem(pair, other);
        assert!(said.contains("is no succession; two ops, like compress > encrypt"), "{said}");
    }
    let trip = "[chains.trip_ns]\nvalue = 2500\nkind = \"assumed\"";
    let said = problem(trip, &trip.replace("2500", "9000").replace("assumed", "published"));
    assert!(said.contains("chains.trip_ns"), "{said}");
    let said = problem(
        "[[chains.hand_over]]\nbytes = 64\nns.value = 205",
        "[[chains.hand_over]]\nbytes = 64\nns.value = 20500",
    );
    assert!(said.contains("chains.hand_over at 64 bytes"), "{said}");
}

#[test]
fn ops_may_have_engines_of_their_own() {
    let profile = find("accelflow");
    let rpc = profile.rpc.as_ref().expect("it has RPC");
    assert_eq!(rpc.engines.as_ref().map(|engines| engines.value), Some(8));
    assert_eq!(rpc.entries_total.as_ref().map(|entries| entries.value), Some(64));
    let text = include_str!("../../../specs/devices/accelflow.toml");
    let changed = text.replacen("[rpc.engines]\nvalue = 8", "[rpc.engines]\nvalue = 0", 1);
    let error = DeviceProfile::parse(&changed, "changed").expect_err("no engines");
    assert!(error.to_string().contains("rpc.engines: value is 0; 1 to 1024"), "{error}");
}
