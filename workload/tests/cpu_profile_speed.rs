//! Tests that a gigabyte of perf text or folded stacks is read in under ten seconds and in bounded memory.

use std::io::{self, Read};
use std::time::Instant;

use units::Prng;
use workload::cpu::{Rules, read};

const BYTES: usize = 1 << 30;
const SECONDS_MAX: f64 = 10.0;
const MEMORY_KIB_MAX: u64 = 256 << 10;

/// A reader that repeats one text.
struct Repeated {
    text: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.text.len() {
            self.at = 0;
        }
        let rest = &self.text[self.at..];
        let count = rest.len().min(buffer.len()).min(self.left);
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        self.left -= count;
        Ok(count)
    }
}

fn symbol(prng: &mut Prng) -> String {
    let known = ["ZSTD_compressBlock_fast", "__memmove_avx_unaligned_erms", "tcp_sendmsg_locked"];
    match prng.below(4) {
        0 => known[prng.below(3) as usize].to_owned(),
        _ => format!("service::module{}::function_of_the_service", prng.below(20_000)),
    }
}

fn folded(prng: &mut Prng) -> String {
    let frames: Vec<String> = (0..prng.below(20) + 5).map(|_| symbol(prng)).collect();
    format!("{} {}\n", frames.join(";"), prng.below(1_000) + 1)
}

fn perf(prng: &mut Prng) -> String {
    let mut text = "server 1234/1240 [001] 100.000001:    1000 cycles:ppp: \n".to_owned();
    for _ in 0..prng.below(20) + 5 {
        let (address, symbol) = (prng.below(1 << 32), symbol(prng));
        text += &format!("\t    7f00{address:08x} {symbol}+0x1f (/srv/server)\n");
    }
    text + "\n"
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
#[ignore = "reads two gigabytes against a clock, too slow unoptimised: cargo test --release -p workload --test \
            cpu_profile_speed -- --ignored --nocapture"]
fn a_gigabyte_is_read_in_under_ten_seconds() {
    let rules = Rules::compiled_in().expect("they are ours");
    for (form, sample) in [("folded", folded as fn(&mut Prng) -> String), ("perf script", perf)] {
        let mut prng = Prng::new(5);
        let mut text = String::new();
        while text.len() < 8 << 20 {
            text += &sample(&mut prng);
        }
        let input = Repeated { text: text.into_bytes(), at: 0, left: BYTES };
        let start = Instant::now();
        let profile = read(input, &rules).expect("a profile");
        let seconds = start.elapsed().as_secs_f64();
        let (samples, memory) = (profile.total.samples, memory_kib() >> 10);
        println!("{form}: 1 GiB in {seconds:.2} s, {samples} samples, at most {memory} MiB");
        assert!(seconds < SECONDS_MAX, "{form}: {seconds} s");
        // The input may end within its last line.
        assert!(profile.malformed.lines <= 1, "{:?}", profile.malformed);
    }
    assert!(memory_kib() < MEMORY_KIB_MAX, "{} KiB", memory_kib());
}
