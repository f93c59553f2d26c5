//! The compiled-in profiles read, and a wrong file is told what is wrong with it.

use super::*;

const IAA: &str = include_str!("../../../specs/devices/iaa.toml");

fn iaa() -> DeviceProfile {
    DeviceProfile::find("iaa").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_compiled_in_profile_reads_and_every_file_is_compiled_in() {
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
    assert_eq!(profile.decompress.latency(4_096), Nanos(2_999));
    profile.huffman.value = Huffman::Fixed;
    let compress = profile.compress();
    assert_eq!(compress.latency(4_096), Nanos(3_250));
    assert_eq!(compress.latency(16_384), Nanos(9_400));
    assert_eq!(compress.latency(10_240), Nanos((3_250 + 9_400) / 2));
    // 2.0 GB/s beyond the last point.
    let beyond = compress.latency(16_384 + 20_000).0 - 9_400;
    assert!((9_900..=10_100).contains(&beyond), "{beyond}");
    assert_eq!(compress.latency(0), compress.latency(64));
    assert_eq!(compress.interval(8_192), Nanos(2 * 1_374));
}

#[test]
fn variants_take_the_ends_of_the_ranges_and_say_so() {
    let at = |variant, bytes| {
        let profile = iaa().variant(variant);
        (profile.compress().latency(bytes), profile.decompress.latency(bytes), profile.submit())
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
    for point in &iaa().compress.fixed.latency {
        assert_eq!(low.compress.dynamic.latency(point.bytes), Nanos(point.ns.value));
    }
}

#[test]
fn errors_name_the_key_the_value_and_the_range() {
    let broken = [
        ("window_log2]\nvalue = 12", "window_log2]\nvalue = 40", "window_log2: value is 40; 9 to"),
        ("engines]\nvalue = 8", "engines]\nvalue = 0", "engines: value is 0; 1 to 1024"),
        ("bytes = 16384", "bytes = 4096", "compress.fixed.latency: bytes are [64, 4096, 4096]"),
        ("ns.value = 3250", "ns.value = 99000", "range is [3230, 3571]"),
        ("submit_ns]", "submit_us]", "submit_us"),
        ("kind = \"published\"", "kind = \"guessed\"", "guessed"),
        ("applied = false", "applied = 7", "line"),
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
    assert!(refused(|p| p.engines.source.clear()).contains("engines: source is"));
    assert!(refused(|p| p.engines.source = "none".into()).contains("engines: source is"));
    assert!(refused(|p| p.submit_ns.range = None).contains("submit_ns: range is missing"));
    assert!(refused(|p| p.submit_ns.assumption = None).contains("submit_ns: assumption is"));
    assert!(refused(|p| p.decompress.batch.clear()).contains("decompress.batch"));
    let falling = refused(|p| p.decompress.latency[2].ns.range = Some([1, 40_000]));
    assert!(falling.contains("decompress.latency: ns (Low)"), "{falling}");
}
