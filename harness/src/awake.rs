//! Keeps the cores awake while an experiment runs. An idle core sleeps, and on a virtual machine the host takes tens of
//! microseconds to wake it, at every hop of every request. The measured latency would then be the host's, not the
//! services'. One thread per core spins in the idle scheduling class. Any other thread replaces it at once.

use std::num::NonZeroUsize;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::gettid;

/// The spinning threads. Dropping this value ends them.
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts one thread per core. Returns `None` if this system cannot put the threads in the idle class.
    pub fn start() -> Option<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let stop = Arc::new(AtomicBool::new(false));
        let mut awake = Self { stop: Arc::clone(&stop), threads: Vec::new() };
        for core in 0..cores {
            let stop = Arc::clone(&stop);
            let (tell, idle) = std::sync::mpsc::channel();
            let spin = move || {
                let is_idle = be_idle(core);
                let _ = tell.send(is_idle);
                while is_idle && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            awake.threads.push(thread::Builder::new().name("awake".to_owned()).spawn(spin).ok()?);
            if !idle.recv().unwrap_or(false) {
                return None;
            }
        }
        Some(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Puts the calling thread in the idle class and pins it to a core. Returns whether that succeeded.
fn be_idle(core: usize) -> bool {
    let thread = gettid().as_raw_nonzero().to_string();
    let core = core.to_string();
    let done = |program: &str, args: &[&str]| {
        let quiet =
            Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    done("taskset", &["-c", "-p", &core, &thread]) && done("chrt", &["--idle", "-p", "0", &thread])
}
