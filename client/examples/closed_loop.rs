//! A closed loop on a cache, for `bench/near.py`: one client, the next call when the last one has returned. It prints
//! one line of JSON.
//!
//! ```text
//! closed_loop ADDRESS [--op get|many|set] [--keys N] [--value-bytes N] [--text] [--seconds S] [--gap-us N]
//!     [--poll-max-us N]
//! ```
//!
//! `get` reads one key at a time and `many` all keys in one call. `--text` makes values that compress to about a
//! third. `--gap-us` sleeps between two calls, so that both sides are asleep when the next one begins. Without it the
//! next call begins at once. `--poll-max-us` is the option `poll_max` of the client. Each answer is compared with what
//! was written, outside of the measured time.

use std::error::Error;
use std::time::{Duration, Instant};

use rebate_client::{Client, Options, Write};

struct Asked {
    address: String,
    op: String,
    keys: usize,
    value_bytes: usize,
    text: bool,
    seconds: f64,
    gap: Duration,
    options: Options,
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = Asked::parse(std::env::args().skip(1))?;
    let mut client = Client::new(&[&asked.address], asked.options)?;
    let keys: Vec<String> = (0..asked.keys).map(|number| format!("key:{number:06}")).collect();
    let value = value(asked.value_bytes, asked.text);
    for key in &keys {
        client.set(key.as_bytes(), &value, Write::default())?;
    }
    let warm_calls = run(&mut client, &asked, &keys, &value, asked.seconds / 8.0)?.len();
    let before_s = cpu_s()?;
    let begun = Instant::now();
    let mut latencies_ns = run(&mut client, &asked, &keys, &value, asked.seconds)?;
    let (took_s, cpu_s) = (begun.elapsed().as_secs_f64(), cpu_s()? - before_s);
    latencies_ns.sort_unstable();
    let at = |share: f64| latencies_ns[((latencies_ns.len() - 1) as f64 * share) as usize];
    let calls = latencies_ns.len();
    let all_calls = keys.len() + warm_calls + calls;
    let (calls_per_s, client_cpu_ns) = (calls as f64 / took_s, cpu_s * 1e9 / calls as f64);
    let (p10_ns, p50_ns, p99_ns) = (at(0.1), at(0.5), at(0.99));
    println!(
        "{{\"calls\": {calls}, \"all_calls\": {all_calls}, \"calls_per_s\": {calls_per_s:.0}, \
         \"p10_ns\": {p10_ns}, \"p50_ns\": {p50_ns}, \"p99_ns\": {p99_ns}, \
         \"client_cpu_ns\": {client_cpu_ns:.0}}}",
    );
    Ok(())
}

impl Asked {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let address = words.next().ok_or("an address is missing")?;
        let mut asked = Self {
            address,
            op: "get".to_owned(),
            keys: 1,
            value_bytes: 200,
            text: false,
            seconds: 1.0,
            gap: Duration::ZERO,
            options: Options::default(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--text" => asked.text = true,
                "--op" => asked.op = value()?,
                "--keys" => asked.keys = value()?.parse()?,
                "--value-bytes" => asked.value_bytes = value()?.parse()?,
                "--seconds" => asked.seconds = value()?.parse()?,
                "--gap-us" => asked.gap = Duration::from_micros(value()?.parse()?),
                "--poll-max-us" => {
                    asked.options.poll_max = Duration::from_micros(value()?.parse()?);
                }
                _ => return Err(format!("{word} is no flag of this program").into()),
            }
        }
        if !["get", "many", "set"].contains(&asked.op.as_str()) || asked.keys == 0 {
            return Err("--op is get, many or set, and --keys is at least 1".into());
        }
        Ok(asked)
    }
}

/// Makes calls for `seconds` and returns their latencies (ns).
fn run(
    client: &mut Client,
    asked: &Asked,
    keys: &[String],
    value: &[u8],
    seconds: f64,
) -> Result<Vec<u64>, Box<dyn Error>> {
    let mut latencies_ns = Vec::with_capacity(1 << 20);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut since = Instant::now();
    let wanted = match asked.op.as_str() {
        "get" => 1,
        "set" => 0,
        _ => keys.len(),
    };
    while since < end || latencies_ns.is_empty() {
        let key = keys[latencies_ns.len() % keys.len()].as_bytes();
        let (mut one, mut many) = (None, Vec::new());
        match asked.op.as_str() {
            "get" => one = client.get(key)?,
            "set" => _ = client.set(key, value, Write::default())?,
            _ => many = client.get_many(keys)?,
        }
        latencies_ns.push(since.elapsed().as_nanos() as u64);
        let right = one.iter().chain(many.iter().flatten()).filter(|item| item.value == value);
        if right.count() != wanted {
            return Err(format!("a wrong answer for {}", String::from_utf8_lossy(key)).into());
        }
        if !asked.gap.is_zero() {
            std::thread::sleep(asked.gap);
        }
        // A long value takes as long to compare as a short one to get.
        since = Instant::now();
    }
    Ok(latencies_ns)
}

/// Returns bytes that no codec makes shorter, or words of which a codec leaves about a third.
fn value(bytes: usize, text: bool) -> Vec<u8> {
    let mut state = 1_u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut value = Vec::with_capacity(bytes + 16);
    while value.len() < bytes {
        match text {
            false => value.push(draw() as u8),
            true => value.extend_from_slice(format!("{:x} the item; ", draw() % 4_096).as_bytes()),
        }
    }
    value.truncate(bytes);
    value
}

/// Returns the processor time of this process (s).
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let times = std::fs::read_to_string("/proc/self/schedstat")?;
    let ran_ns: f64 = times.split_whitespace().next().ok_or("no time")?.parse()?;
    Ok(ran_ns / 1e9)
}
