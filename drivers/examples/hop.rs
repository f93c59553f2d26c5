//! Measures the cost of the connection to a compression service, without any work there. It makes round trips of
//! `Echo`, one at a time, over the remote device's own connection and over tonic's channel. `hop ADDR [PID]` prints
//! medians and CPU time per call. It includes the service's CPU time if its process id is given and it runs on this
//! machine.

use std::fs;
use std::time::{Duration, Instant};

use api::v1::EchoRequest;
use api::v1::compression_client::CompressionClient;
use bytes::Bytes;
use drivers::{Remote, RemoteOptions};
use rustix::time::{ClockId, clock_gettime};

type Problem = Box<dyn std::error::Error>;

/// Returns the sorted round-trip times. This is a macro, because the type of the client depends on its connection.
macro_rules! measure {
    ($client:expr, $bytes:expr) => {{
        let payload = Bytes::from(vec![7; $bytes]);
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let payload = payload.clone();
            let request = EchoRequest { response_bytes: $bytes as u32, payload };
            let start = Instant::now();
            let answer = $client.echo(request).await?;
            times.push(start.elapsed());
            assert_eq!(answer.into_inner().payload.len(), $bytes);
        }
        times.sort();
        times
    }};
}

fn main() -> Result<(), Problem> {
    let mut args = std::env::args().skip(1);
    let address: api::Address = args.next().ok_or("usage: hop ADDR [PID]")?.parse()?;
    let pid = args.next();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(tokio::runtime::LocalOptions::default())?;
    executor.block_on(async {
        let remote = Remote::new(address.clone(), &RemoteOptions::default())?;
        println!("path      bytes    p50 us   p99 us   CPU us here   CPU us there");
        for bytes in [64, 4 << 10, 64 << 10] {
            let mut connection = remote.connect().await?;
            let here = || clock_ns(ClockId::ThreadCPUTime);
            let there = || pid.as_deref().map_or(0, cpu_ns);
            let before = (here(), there());
            let times = measure!(connection.client, bytes);
            report("own", bytes, times, (here() - before.0, there() - before.1));

            let channel = api::wire::channel(&address, Duration::from_secs(1))?;
            let mut client = CompressionClient::new(channel);
            let before = (here(), there());
            let times = measure!(client, bytes);
            report("channel", bytes, times, (here() - before.0, there() - before.1));
        }
        Ok(())
    })
}

fn report(path: &str, bytes: usize, times: Vec<Duration>, cpu_ns: (u64, u64)) {
    let us = |at: usize| times[at].as_nanos() as f64 / 1e3;
    let each = |ns: u64| ns as f64 / 1e3 / CALLS as f64;
    let (p50, p99) = (us(CALLS / 2), us(CALLS / 100 * 99));
    let (here, there) = (each(cpu_ns.0), each(cpu_ns.1));
    println!("{path:<8} {bytes:>6} {p50:>9.1} {p99:>8.1} {here:>13.1} {there:>14.1}");
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU time of all threads of a process.
fn cpu_ns(pid: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.filter_map(spent).sum()
}

const CALLS: usize = 20_000;
