//! iceoryx2 where `drivers/benches/lane.rs` has a lane: round trips of values that nobody reads, by size, to a second
//! process that answers without any work, both polling on cores of their own. A value is published there and an answer
//! back, each in memory that the publisher wrote anew; both are shown to the other side and neither is looked at. (The
//! lane's client copies its answer out, of the same 512 bytes.) The loan of the memory is not timed.
//!
//! Columns are the lane's; who polls rings no bell, and nothing is copied. `--quick` runs each size shortly. From the
//! top of the repository, on a machine that does nothing else:
//!
//! - `cargo run --release --manifest-path bench/rivals/iceoryx2/Cargo.toml --target-dir target/rivals`;
//! - `cargo bench -p drivers --bench lane -- own-cores.polled`, whose rows `in place` are what to compare with

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
            // The service has not come yet.
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
        breathe();
    }
    end.written(FAREWELL_BYTES)?.send()?;
    service.0.wait()?;
    Ok(times)
}

/// Answers every value, until one of the length that says goodbye.
fn serve(name: &str) -> Result<(), Problem> {
    pin(SERVICE_CORE)?;
    let end = End::open(name, ["back", "there"], ANSWER_BYTES)?;
    let client = std::os::unix::process::parent_id();
    // Written before it is asked for, as the time that it takes is not the hop's.
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

/// One side: values go out under the one name and come in under the other.
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
        // The way back first: whoever can be heard can hear.
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

/// The service's process; it ends with its client.
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

/// Long enough for the service to write the next answer.
fn breathe() {
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

/// What the lane's answers have: the smallest buffer of its pools.
const ANSWER_BYTES: usize = 512;

/// No value is so short.
const FAREWELL_BYTES: usize = 1;

/// A look at the other process is a system call.
const LOOKS_PER_CHECK: u32 = 1 << 20;
