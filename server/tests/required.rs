//! Tests a server whose only device is lost, returns wrong bytes or is withdrawn at the start. The tests
//! check the effect of `runtime.fallback_decompress`: software reads the values that the device did not, or
//! they are misses. They also check the metrics. The device is software in a wrapper that injects faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use device::{
    Capabilities, Completion, Device, DeviceError, FaultPlan, Faulty, Job, Kernel, Queue, Refused,
    Software, Task, Waiting,
};
use server::config::{FallbackName, PolicyName, ValueOp};
use server::{Config, Devices, Server, ServerHandle};
use units::{ByteCount, Nanos};

/// A device that compresses the first value and is then lost.
const LOST: FaultPlan = FaultPlan { lose_after: Some(1), ..SOUND };

/// A device that always returns wrong bytes. Verification detects this, and software compresses again.
const WRONG: FaultPlan = FaultPlan { corrupt_every: 1, ..SOUND };

#[test]
fn values_of_a_lost_device_fall_to_software_or_miss() {
    for (fallback, is_served, no_device) in
        [(FallbackName::Prefer, true, 0.0), (FallbackName::Require, false, 1.0)]
    {
        let cache = Cache::over(devices(LOST), fallback);
        assert_eq!(cache.set_and_get(), is_served, "{fallback:?}");
        assert_eq!(cache.frame_errors("device_corrupt"), 0.0, "{fallback:?}: none was wrong");
        assert_eq!(cache.frame_errors("no_device"), no_device, "{fallback:?}");
        assert_eq!(cache.frame_errors("corrupt"), 0.0, "{fallback:?}: the frame is sound");
        let redone = cache.counted("rebate_jobs_total{", "device=\"software\"");
        assert_eq!(redone, f64::from(u8::from(is_served)), "{fallback:?}: {}", cache.page());
    }
}

#[test]
fn values_read_wrong_fall_to_software_or_miss() {
    for (fallback, is_served, no_device) in
        [(FallbackName::Prefer, true, 0.0), (FallbackName::Require, false, 1.0)]
    {
        let cache = Cache::over(devices(WRONG), fallback);
        assert_eq!(cache.set_and_get(), is_served, "{fallback:?}");
        assert_eq!(cache.frame_errors("device_corrupt"), 1.0, "{fallback:?}");
        assert_eq!(cache.frame_errors("no_device"), no_device, "{fallback:?}");
    }
}

#[test]
fn a_server_does_without_a_withdrawn_device() {
    let devices = devices(WRONG).qualified_within(0, Duration::from_secs(60));
    let cache = Cache::over(devices, FallbackName::Prefer);
    assert!(cache.set_and_get());
    let page = cache.page();
    assert!(page.contains("{device=\"faulty-software\",counter=\"withdrawn\"} 1"), "{page}");
    for label in ["device=\"software\"", ""] {
        let jobs = cache.counted("rebate_jobs_total{", label);
        assert_eq!(jobs, 2.0, "what was tried before is in no count: {page}");
    }
}

/// Without verification, a wrong stream is detected only when it is read, and counts against its writer.
#[test]
fn a_stream_that_nobody_reads_counts_against_its_writer() {
    let cache = Cache::verifying(devices(WRONG), FallbackName::Prefer, 0);
    let misses = (0..9).filter(|_| !cache.set_and_get()).count();
    assert_eq!(misses, 5, "then the device is out of service");
    let corrupt = "rebate_device_corrupt_total{";
    assert_eq!(cache.counted(corrupt, "op=\"compress\""), 5.0);
    assert_eq!(cache.counted(corrupt, "op=\"decompress\""), 0.0);
    assert_eq!(cache.counted("rebate_device_distrusted_total{", "faulty"), 1.0);
}

/// A value that was sealed without a frame has no checksum, so nothing but software's own result is served.
#[test]
fn a_device_that_opens_sealed_values_wrong_serves_no_wrong_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.toml");
    let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let text = format!("active = 1\n[[key]]\nid = 1\nsecret = \"{secret}\"\n");
    std::fs::write(&keys, text).expect("it is written");
    let devices =
        Devices { all: vec![Arc::new(Software::default()), WrongOpener::new()], accelerators: 1 };
    let cache = Cache::with(devices, |config| {
        config.runtime.verify_every = 0;
        config.values.keys = Some(keys);
        config.values.path = vec![ValueOp::Compress, ValueOp::Encrypt];
    });
    let random: String = (0..3_000_u32).map(|n| char::from(b'!' + (n * n % 89) as u8)).collect();
    for value in ["balance=99;", &random, &"a value that compresses well, ".repeat(100)] {
        for _ in 0..3 {
            assert!(cache.serves(value), "{value:.20}");
        }
    }
    let opened = cache.counted("rebate_jobs_total{op=\"decrypt\"", "wrong-opener");
    assert!(opened >= 1.0, "{}", cache.page());
    assert!(cache.frame_errors("device_corrupt") >= 1.0, "{}", cache.page());
}

/// A device for ciphers whose decryptions have a wrong byte.
struct WrongOpener(Capabilities);

impl WrongOpener {
    fn new() -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.kernels = vec![Kernel::AesGcm];
        (capabilities.writes, capabilities.reads) = (Vec::new(), Vec::new());
        capabilities.waiting = Waiting::Polled { expected: Nanos(0) };
        Arc::new(Self(capabilities))
    }
}

impl Device for WrongOpener {
    fn name(&self) -> &str {
        "wrong-opener"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(WrongOpenerQueue(Software::default().open_queue(waker)?)))
    }
}

struct WrongOpenerQueue(Box<dyn Queue>);

impl Queue for WrongOpenerQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        let count = self.0.poll(done);
        for Completion { job, .. } in &mut done[before..] {
            if matches!(job.task, Task::Decrypt { .. }) {
                let at = job.output_offset;
                job.output.space()[at] ^= 1;
            }
        }
        count
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }
}

/// Returns software and one device that fails according to `plan`.
fn devices(plan: FaultPlan) -> Devices {
    let device = Faulty::new(Arc::new(Software::default()), plan);
    Devices { all: vec![Arc::new(Software::default()), Arc::new(device)], accelerators: 1 }
}

/// A server with software and one device that gets every job unless it is withdrawn.
struct Cache(ServerHandle);

impl Cache {
    fn over(devices: Devices, fallback: FallbackName) -> Self {
        Self::verifying(devices, fallback, 1)
    }

    fn verifying(devices: Devices, fallback: FallbackName, verify_every: u32) -> Self {
        Self::with(devices, |config| {
            config.runtime.verify_every = verify_every;
            config.runtime.fallback_decompress = fallback;
        })
    }

    fn with(devices: Devices, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.server.listen = vec!["127.0.0.1:0".to_owned()];
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.threads = 1;
        config.runtime.policy =
            PolicyName::Named(policy::NamedPolicy::find("async-offload").expect("it is listed"));
        config.runtime.offload_bytes_min = ByteCount(0);
        change(&mut config);
        Self(Server::start(config, devices).expect("starts"))
    }

    /// Stores a compressible value, and returns whether it can be read afterwards.
    fn set_and_get(&self) -> bool {
        self.serves(&"a value that compresses well, ".repeat(100))
    }

    /// Stores a value, and returns whether it can be read afterwards.
    fn serves(&self, value: &str) -> bool {
        let mut stream = connect(self.0.addresses()[0]);
        write!(stream, "set key 0 0 {}\r\n{value}\r\n", value.len()).expect("is taken");
        let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut line = || {
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            line
        };
        assert_eq!(line(), "STORED\r\n");
        stream.write_all(b"get key\r\n").expect("is taken");
        match line().as_str() {
            "END\r\n" => false,
            first => {
                assert!(first.starts_with("VALUE key 0 "), "{first}");
                assert_eq!(line().trim_end_matches("\r\n"), value);
                true
            }
        }
    }

    fn frame_errors(&self, kind: &str) -> f64 {
        self.counted("rebate_frame_errors_total{", &format!("kind=\"{kind}\""))
    }

    /// Returns the sum of the samples of `family` with this label.
    fn counted(&self, family: &str, label: &str) -> f64 {
        let page = self.page();
        let of = |line: &&str| line.starts_with(family) && line.contains(label);
        let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
        page.lines().filter(of).map(|line| value(line).expect("a number")).sum()
    }

    fn page(&self) -> String {
        let mut stream = connect(self.0.admin_address().expect("pages are on"));
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("is read");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answers");
        page
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

const SOUND: FaultPlan = FaultPlan { seed: 1, ..FaultPlan::SOUND };
