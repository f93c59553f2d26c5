//! Measures the cost of the connection to a compression service, without any work there. It makes round trips of
//! `Echo`, one at a time, over the remote device's own connection and over tonic's channel. `hop --to=ADDR` prints
//! percentiles and CPU time per call. With `--pid=PID` of a service on this machine it includes the service's CPU time.

use std::fs;
use std::time::{Duration, Instant};

use api::v1::EchoRequest;
use api::v1::compression_client::CompressionClient;
use bytes::Bytes;
use drivers::{Remote, RemoteOptions};
use harness::bench::{thread_time, value};
use harness::{Bench, quantile};

type Problem = Box<dyn std::error::Error>;

/// Returns the round-trip times. This is a macro, because the type of the client depends on its connection.
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
        times
    }};
}

fn main() -> Result<(), Problem> {
    let mut bench = Bench::new("cargo run --release -p drivers --example hop", 1);
    let address: api::Address = value("--to").ok_or("usage: hop --to=ADDR [--pid=PID]")?.parse()?;
    let pid = value("--pid");
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(tokio::runtime::LocalOptions::default())?;
    executor.block_on(async {
        let remote = Remote::new(address.clone(), &RemoteOptions::default())?;
        for bytes in [64, 4 << 10, 64 << 10] {
            let mut connection = remote.connect().await?;
            let here = || thread_time().as_nanos() as u64;
            let there = || pid.as_deref().map_or(0, cpu_ns);
            let before = (here(), there());
            let times = measure!(connection.client, bytes);
            report(&mut bench, "own", bytes, times, (here() - before.0, there() - before.1));

            let channel = api::wire::channel(&address, Duration::from_secs(1))?;
            let mut client = CompressionClient::new(channel);
            let before = (here(), there());
            let times = measure!(client, bytes);
            report(&mut bench, "channel", bytes, times, (here() - before.0, there() - before.1));
        }
        bench.finish();
        Ok(())
    })
}

fn report(
    bench: &mut Bench,
    path: &str,
    bytes: usize,
    mut times: Vec<Duration>,
    cpu_ns: (u64, u64),
) {
    let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut times, share).as_secs_f64() * 1e6);
    let [here, there] = [cpu_ns.0, cpu_ns.1].map(|ns| ns as f64 / 1e3 / CALLS as f64);
    let rows = [("p50", "us"), ("p99", "us"), ("cpu_here", "us"), ("cpu_there", "us")];
    bench.rows(&format!("{path}.{bytes}"), rows, &[[p50, p99, here, there]]);
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
