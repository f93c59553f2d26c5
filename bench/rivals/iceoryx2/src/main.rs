//! Measures iceoryx2 as `drivers/benches/lane.rs` measures a lane: the times of round trips, by value size,
//! to a second process that answers without any work. Both processes poll, each on a separate core. Value and
//! answer are published in memory that the publisher has just written. The receiver does not read them. (The
//! lane's client copies its answer of 512 bytes.) The time to loan the memory is not included.
//!
//! The columns are those of the lane's benchmark. Wake-ups and copied bytes are always zero. `--quick` makes
//! fewer round trips. Run these commands from the top of the repository, on an otherwise idle machine:
//!
//! - `cargo run --release --manifest-path bench/rivals/iceoryx2/Cargo.toml --target-dir target/rivals`
//! - `cargo bench -p drivers --bench lane -- own-cores.polled`, of which the rows `in_place` are comparable

use std::error::Error;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::sample_mut::SampleMut;
use rustix::thread::{CpuSet, sched_setaffinity};

type Problem = Box<dyn Error>;
type Value = SampleMut<ipc::Service, [u8], ()>;

fn main() -> Result<(), Problem> {
    set_log_level(LogLevel::Error);
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &args[..]
        && flag == "--serve"
    {
        return serve(name);
    }
    let trips = if args.iter().any(|arg| arg == "--quick") { 200 } else { 20_000 };
    println!("case               value       bytes     p50 us    p99 us  bells/job  copied/job");
    for bytes in SIZES {
        let mut times = measure(bytes, trips)?;
        times.drain(..trips / 10);
        times.sort_unstable();
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos() as f64 / 1e3;
        let (p50, p99) = (at(0.5), at(0.99));
        print!("iceoryx2.polled    in place  {bytes:>7} {p50:>10.2} {p99:>9.2} ");
        println!("{:>10.2} {:>11.0}", 0.0, 0.0);
    }
    Ok(())
}

fn measure(bytes: usize, trips: usize) -> Result<Vec<Duration>, Problem> {
    pin(CLIENT_CORE)?;
    let name = format!("rebate-rival/{}/{bytes}", std::process::id());
    let end = End::open(&name, ["there", "back"], bytes)?;
    let mut service = Service::start(&name)?;
    let mut times = Vec::with_capacity(trips);
    while times.len() < trips {
        let value = end.written(bytes)?;
        let start = Instant::now();
        if value.send()? == 0 {
            // The service has not subscribed yet.
            service.check()?;
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut looks = 0_u32;
        while end.subscriber.receive()?.is_none() {
            std::hint::spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_CHECK) {
                service.check()?;
            }
        }
        times.push(start.elapsed());
        pause();
    }
    end.written(FAREWELL_BYTES)?.send()?;
    service.0.wait()?;
    Ok(times)
}

/// Answers every value until a value of `FAREWELL_BYTES` arrives.
fn serve(name: &str) -> Result<(), Problem> {
    pin(SERVICE_CORE)?;
    let end = End::open(name, ["back", "there"], ANSWER_BYTES)?;
    let client = std::os::unix::process::parent_id();
    // The first answer is written here, so that the time to write it is not in the round trip.
    let mut answer = Some(end.written(ANSWER_BYTES)?);
    let mut looks = 0_u32;
    loop {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_PER_CHECK) && std::os::unix::process::parent_id() != client {
            return Ok(());
        }
        let Some(value) = end.subscriber.receive()? else {
            std::hint::spin_loop();
            continue;
        };
        if value.len() == FAREWELL_BYTES {
            return Ok(());
        }
        answer.take().ok_or("an answer is always at hand")?.send()?;
        drop(value);
        answer = Some(end.written(ANSWER_BYTES)?);
    }
}

/// One end of the connection. Values are sent under one name and received under another.
struct End {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl End {
    fn open(name: &str, [out, back]: [&str; 2], bytes_max: usize) -> Result<Self, Problem> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let service = |way: &str| -> Result<_, Problem> {
            let name = ServiceName::new(&format!("{name}/{way}"))?;
            Ok(node.service_builder(&name).publish_subscribe::<[u8]>().open_or_create()?)
        };
        // The subscriber is created first, so that an end whose values arrive can also receive.
        let subscriber = service(back)?.subscriber_builder().create()?;
        let out = service(out)?;
        let publisher = out.publisher_builder().initial_max_slice_len(bytes_max).create()?;
        Ok(Self { publisher, subscriber, _node: node })
    }

    fn written(&self, bytes: usize) -> Result<Value, Problem> {
        let mut value = self.publisher.loan_slice(bytes)?;
        value.payload_mut().fill(7);
        Ok(value)
    }
}

/// The service's process, which is killed when this value is dropped.
struct Service(Child);

impl Service {
    fn start(name: &str) -> Result<Self, Problem> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(command.arg("--serve").arg(name).spawn()?))
    }

    fn check(&mut self) -> Result<(), Problem> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the service ended: {status}").into()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits long enough for the service to write the next answer.
fn pause() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(20) {
        std::hint::spin_loop();
    }
}

fn pin(core: usize) -> Result<(), Problem> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

const CLIENT_CORE: usize = 0;
const SERVICE_CORE: usize = 1;

const SIZES: [usize; 4] = [64, 4 << 10, 16 << 10, 64 << 10];

/// The size of an answer (bytes). It equals the smallest buffer of the lane's pools.
const ANSWER_BYTES: usize = 512;

/// The size of the value that ends the service (bytes). No other value is as short.
const FAREWELL_BYTES: usize = 1;

/// The number of polls between two checks that the other process is alive, because a check is a system call.
const LOOKS_PER_CHECK: u32 = 1 << 20;
