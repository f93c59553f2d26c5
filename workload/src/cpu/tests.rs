//! Tests profiles that are small enough to count by hand.

use super::*;

fn rules() -> Rules {
    Rules::compiled_in().expect("they are ours")
}

fn read_text(text: &str) -> CpuProfile {
    read(text.as_bytes(), &rules()).expect("a profile")
}

fn share(profile: &CpuProfile, category: &str) -> f64 {
    profile.find(category).map_or(0.0, |one| profile.share(one.sums))
}

const FOLDED: &str = "\
# a comment
main;serve;business;hash_lookup 40
main;serve;compress_response;ZSTD_compressBlock_fast 30

main;serve;compress_response;ZSTD_compressBlock_fast;__memcpy_avx_unaligned 10
main;serve;tcp_sendmsg_[k];__schedule_[k] 20
no count here
main;broken x
";

#[test]
fn folded_stacks_are_sorted_leaf_and_inclusive() {
    let profile = read_text(FOLDED);
    assert_eq!((profile.format, profile.event.as_str()), ("folded stacks", "samples"));
    assert_eq!((profile.total.weight, profile.total.samples), (100, 100));
    // The copy that the compressor calls is a leaf in its category, and counts as compression in the functionalities.
    let leaf = |name| profile.leaf.find(name).map_or(0, |one| one.sums.weight);
    assert_eq!([leaf("ZSTD"), leaf("Memory"), leaf("Kernel")], [30, 10, 20]);
    assert_eq!(share(&profile, "Compression"), 0.4);
    assert_eq!(profile.leaf.uncategorised.sums.weight, 40);
    assert_eq!(profile.leaf.uncategorised.top, [("hash_lookup".to_owned(), 40)]);
    let memory = profile.leaf.find("Memory").expect("there is some");
    assert_eq!(memory.parts[0].0, "copy");
    assert_eq!(profile.malformed.lines, 2);
    assert_eq!(profile.malformed.examples[0], (7, "no count here".to_owned()));
    assert_eq!(profile.ipc(profile.total), None);
}

const PERF: &str = "\
# captured on: a machine
server  1234/1240 [001] 100.000001:    1000 cycles:ppp:
\t    7f0000001000 ZSTD_compressBlock_fast+0x1f (/usr/lib/libzstd.so.1.5.4)
\t    7f0000002000 respond(std::string const&)+0x10 (/srv/server (deleted))
\t    this is no frame

server  1234/1240 [001] 100.000002:     500 instructions:ppp:
\t    7f0000001000 ZSTD_compressBlock_fast+0x1f (/usr/lib/libzstd.so.1.5.4)

server  1234/1240 [001] 100.000003:    3000 cycles:ppp:
\t    ffffffff8100 __schedule+0x33 ([kernel.kallsyms])
\t    ffffffff8200 [unknown] ([unknown])

server  1234/1240 [001] 100.000004:    3000 cache-misses:
\t    ffffffff8100 __schedule+0x33 ([kernel.kallsyms])
";

#[test]
fn perf_script_gives_cycles_instructions_and_ipc() {
    let profile = read_text(PERF);
    assert_eq!((profile.format, profile.event.as_str()), ("perf script", "cycles:ppp"));
    assert_eq!(profile.total, Sums { samples: 2, weight: 4_000, instructions: 500 });
    let zstd = profile.leaf.find("ZSTD").expect("there is some");
    assert_eq!(zstd.sums.weight, 1_000);
    assert_eq!(profile.ipc(zstd.sums), Some(0.5));
    assert!(zstd.top[0].0.ends_with("(/usr/lib/libzstd.so.1.5.4)"), "{:?}", zstd.top);
    assert_eq!(profile.leaf.find("Kernel").expect("there is some").sums.weight, 3_000);
    assert_eq!((profile.malformed.lines, profile.other_events), (1, 1));
}

#[test]
fn perf_script_without_stacks_has_a_sample_a_line() {
    let text = "\
            dd  4242 [000]  55.1:   200 cycles:u:  7f00 __memcpy_avx_unaligned+0x5 (/lib/libc.so.6)
          cafe  4242 [000]  55.2:   100 cycles:u:  7f01 operator new(unsigned long)+0x5 (/lib/x.so)
";
    let profile = read_text(text);
    assert_eq!(profile.total.weight, 300);
    let memory = profile.leaf.find("Memory").expect("there is some");
    let parts: Vec<_> = memory.parts.iter().map(|(name, sums)| (&**name, sums.weight)).collect();
    assert_eq!(parts, [("copy", 200), ("allocation", 100)]);
}

/// Makes a profile from (event, period, function). Each sample has a stack of one function.
fn perf(samples: &[(&str, u64, &str)]) -> CpuProfile {
    let line = |(event, period, symbol): &(&str, u64, &str)| {
        format!("srv  42 [000]  55.1:  {period} {event}:  7f00 {symbol}+0x5 (/srv/x)\n")
    };
    read_text(&samples.iter().map(line).collect::<String>())
}

#[test]
fn shares_are_of_cycles_if_recorded() {
    let profile = perf(&[
        ("page-faults:u", 9, "main"),
        ("cpu_core/cycles/u", 300, "ZSTD_compressBlock_fast"),
        ("branch-instructions:u", 70, "main"),
        ("cpu_atom/cycles/u", 100, "main"),
        ("stalled-cycles-backend:u", 50, "main"),
        ("cycles:k", 60, "main"),
        ("page-faults:u", 9, "main"),
    ]);
    assert_eq!(profile.total, Sums { samples: 2, weight: 400, instructions: 0 });
    assert_eq!(profile.event, "cpu_core/cycles/u, cpu_atom/cycles/u");
    assert_eq!(
        (profile.leaf.find("ZSTD").map(|one| one.sums.weight), profile.other_events),
        (Some(300), 5)
    );
    assert!(profile.counts_cycles && profile.ipc(profile.total).is_none());
    assert_eq!(profile.leaf.uncategorised.top, [("main (/srv/x)".to_owned(), 100)]);
    let stalled = perf(&[("stalled-cycles-backend", 50, "main")]);
    assert!(!stalled.counts_cycles, "{stalled:?}");
    let first = perf(&[("page-faults", 3, "main"), ("cache-misses", 9, "main")]);
    assert_eq!(
        (first.event.as_str(), first.total.weight, first.other_events),
        ("page-faults", 3, 1)
    );
}

#[test]
fn time_beside_cycles_gives_the_clock() {
    let profile = perf(&[("task-clock:u", 400, "main"), ("cycles:u", 1_000, "main")]);
    assert_eq!((profile.clock_ghz(), profile.other_events), (Some(2.5), 0));
    let time = perf(&[("cpu-clock", 400, "main")]);
    assert_eq!((time.clock_ghz(), time.counts_cycles, time.total.weight), (None, false, 400));
    let instructions = perf(&[("instructions:u", 500, "main")]);
    assert_eq!(instructions.total, Sums { samples: 1, weight: 500, instructions: 0 });
    assert_eq!(
        (instructions.event.as_str(), instructions.ipc(instructions.total)),
        ("instructions:u", None)
    );
}

#[test]
fn stacks_weighted_by_time_count_their_samples() {
    let stacks: String = (1..=40).map(|n| format!("main;f{n} {}\n", n % 4 * 1_000_000)).collect();
    let profile = read_text(&stacks);
    assert_eq!((profile.total.weight, profile.total.samples), (60_000_000, 60));
    assert_eq!(profile.stands_for, Some(StandsFor::Each(1_000_000)));
    assert_eq!(profile.independent_samples, 60.0);
    let counted = read_text(FOLDED);
    assert_eq!(
        (counted.stands_for, counted.independent_samples),
        (Some(StandsFor::Samples), 100.0)
    );
    // The samples of perf have different periods.
    let uneven = perf(&[("cycles", 1_000, "main"), ("cycles", 1, "main")]);
    assert!((uneven.independent_samples - 1.0).abs() < 0.01, "{uneven:?}");
    assert_eq!((uneven.total.samples, uneven.stands_for), (2, None));
}

#[test]
fn symbols_beyond_the_bound_are_counted() {
    let text: String = (0..1_000).map(|index| format!("main;symbol{index} 1\n")).collect();
    let long = format!("{};leaf 1\n", "x".repeat(5_000));
    let limits = Limits { line_bytes_max: 4_096, symbols_max: 10 };
    let all = text + &long;
    let profile = read_within(all.as_bytes(), &rules(), limits).expect("a profile");
    assert_eq!((profile.symbols, profile.frames_beyond), (10, 991));
    assert_eq!((profile.total.weight, profile.malformed.lines), (1_000, 1));
    assert_eq!(profile.leaf.uncategorised.sums.weight, 1_000);
}

#[test]
fn what_is_no_profile_is_refused_with_what_to_do() {
    let refused = |bytes: &[u8]| read(bytes, &rules()).expect_err("refused").to_string();
    assert!(refused(b"PERFILE2xxxx").contains("perf script"));
    assert!(refused(b"\x1f\x8b\x08").contains("compressed"));
    assert!(refused(b"\x1f\x8b\x08\x00\xff\xff\xff\xff").contains("1 to 134217728"));
    assert!(refused(b"\x0a\x04\x08\x01\x10\x02").contains("pprof"));
    assert!(refused(b"\x0a\x04\x08\x01").contains("to its end"));
    assert!(refused(b"\x00\x01").contains("no pprof profile"));
    let prose = refused(b"Dear all,\nthis is prose:\n");
    assert!(prose.contains("2 lines; line 1 is \"Dear all,\""), "{prose}");
    assert!(refused(b"").contains("0 lines"));
}

#[test]
fn no_bytes_crash_it() {
    let (mut prng, rules) = (units::Prng::new(11), rules());
    let words: [&[u8]; 12] = [
        b"main;x", b" ", b"\n", b"7f", b": ", b"cycles:", b"\t", b"(", b")", b"+0x", b"\xff", b"9",
    ];
    for _ in 0..2_000 {
        let mut text = Vec::new();
        for _ in 0..prng.below(40) {
            text.extend_from_slice(words[prng.below(words.len() as u64) as usize]);
        }
        let _ = read(text.as_slice(), &rules);
    }
}

#[test]
fn findings_map_to_table_4() {
    let found = advice(&read_text(FOLDED));
    let finds = |what: &str| found.iter().any(|one| one.finding.contains(what));
    assert!(finds("kernel: 20.0 %") && finds("compression: 40.0 %"), "{found:?}");
    assert!(finds("memory copies and allocations: 10.0 % of all samples"), "{found:?}");
    let of_perf = advice(&read_text(PERF));
    assert!(of_perf.iter().any(|one| one.finding.ends_with("of all cycles")), "{of_perf:?}");
    assert!(!finds("logging"));
}

/// Encodes a field of a protobuf message that holds bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![(number << 3) | 2];
    put(&mut all, bytes.len() as u64);
    all.extend_from_slice(bytes);
    all
}

/// Encodes fields of a protobuf message that hold numbers.
fn numbers(fields: &[(u8, u64)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (number, value) in fields {
        all.push(number << 3);
        put(&mut all, *value);
    }
    all
}

fn put(all: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        all.push(value as u8 | 0x80);
        value >>= 7;
    }
    all.push(value as u8);
}

/// Makes a pprof profile with the stack `main -> compress_response -> ZSTD_compressBlock_fast`, whose last two
/// functions are inlined into one location, and a sample of `main` alone. The values are samples and nanoseconds.
fn pprof() -> Vec<u8> {
    let strings: [&[u8]; 8] = [
        b"",
        b"samples",
        b"count",
        b"cpu",
        b"nanoseconds",
        b"main",
        b"compress_response",
        b"ZSTD_compressBlock_fast",
    ];
    let sample = |ids: &[u64], values: [u64; 2]| {
        let mut packed = Vec::new();
        ids.iter().for_each(|id| put(&mut packed, *id));
        let [count, time] = values;
        [field(1, &packed), numbers(&[(2, count), (2, time)])].concat()
    };
    let location = |id, functions: &[u64]| {
        let lines = functions.iter().map(|function| field(4, &numbers(&[(1, *function), (2, 7)])));
        [numbers(&[(1, id), (2, 1)]), lines.collect::<Vec<_>>().concat()].concat()
    };
    let mut all = vec![
        field(1, &numbers(&[(1, 1), (2, 2)])),
        field(1, &numbers(&[(1, 3), (2, 4)])),
        field(2, &sample(&[300, 1], [3, 30_000])),
        field(2, &sample(&[1], [1, 10_000])),
        field(2, &sample(&[9], [1, 10_000])),
        field(3, &numbers(&[(1, 1), (5, 0)])),
        field(4, &location(1, &[1])),
        field(4, &location(300, &[3, 2])),
    ];
    for (id, name) in [(1, 5), (2, 6), (3, 7)] {
        all.push(field(5, &numbers(&[(1, id), (2, name)])));
    }
    all.extend(strings.map(|text| field(6, text)));
    all.concat()
}

#[test]
fn pprof_is_read_packed_or_not() {
    let plain = pprof();
    let mut packed = vec![0; plain.len() + 100];
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let count = compressor.gzip_compress(&plain, &mut packed).expect("there is room");
    for bytes in [&plain[..], &packed[..count]] {
        let profile = read(bytes, &rules()).expect("a profile");
        assert_eq!((profile.format, profile.event.as_str()), ("pprof", "cpu"));
        assert_eq!(profile.total, Sums { samples: 4, weight: 40_000, instructions: 0 });
        assert_eq!(share(&profile, "Compression"), 0.75);
        assert_eq!(profile.leaf.find("ZSTD").map(|one| one.sums.samples), Some(3));
        assert_eq!(profile.malformed.lines, 1, "a location that is not there");
    }
}

#[test]
fn a_sample_has_no_more_frames_than_a_stack() {
    let line = field(4, &numbers(&[(1, 1)]));
    let mut all = pprof();
    all.extend(field(4, &[numbers(&[(1, 70)]), line.repeat(4_000)].concat()));
    all.extend(field(4, &[numbers(&[(1, 71)]), line.repeat(400_000)].concat()));
    all.extend(field(2, &[field(1, &[71]), numbers(&[(2, 1), (2, 10_000)])].concat()));
    // A few locations with many inlined functions make many frames, and so do many locations in one sample.
    for count in [1, 2, 1_000_000, 2_000_000] {
        let ids = vec![70; count];
        all.extend(field(2, &[field(1, &ids), numbers(&[(2, 1), (2, 10_000)])].concat()));
    }
    let profile = read(all.as_slice(), &rules()).expect("a profile");
    assert_eq!((profile.total.samples, profile.malformed.lines), (5, 5));
}

#[test]
fn the_entries_of_a_profile_are_bounded() {
    let mut all = pprof();
    all.extend(field(2, &[]).repeat(1 << 20));
    let refused = read(all.as_slice(), &rules()).expect_err("refused").to_string();
    assert!(refused.contains("more than 1,048,576 samples"), "{refused}");
}

#[test]
fn no_bytes_of_a_pprof_crash_it() {
    let (mut prng, rules, plain) = (units::Prng::new(5), rules(), pprof());
    for _ in 0..5_000 {
        let mut bytes = plain.clone();
        for _ in 0..1 + prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.bits() as u8;
        }
        bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
        let _ = read(bytes.as_slice(), &rules);
    }
}
