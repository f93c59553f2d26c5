//! The thread of the trainer. It has the lowest priority, so that it yields to workers on a busy machine, and after
//! each turn it rests long enough to stay within its share of a core.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use policy::FormPolicy;
use rustix::time::{ClockId, clock_gettime};
use units::Clock;

use super::Trainer;

/// The running thread. It ends when this is dropped.
pub(crate) struct TrainerThread {
    /// Where the thread gets new forms of values. It ends when this is dropped.
    forms: Option<Sender<FormPolicy>>,
    thread: Option<JoinHandle<()>>,
}

impl TrainerThread {
    /// Starts the thread. After each turn it calls `after_turn` with whether the turn tried new forms for a class.
    pub(crate) fn start(
        trainer: Trainer,
        clock: Arc<dyn Clock>,
        after_turn: impl Fn(bool) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (forms, new_forms) = channel();
        let thread = std::thread::Builder::new()
            .name("rebate-trainer".to_owned())
            .spawn(move || run(trainer, &*clock, after_turn, &new_forms))?;
        Ok(Self { forms: Some(forms), thread: Some(thread) })
    }

    /// Lets the trainer compare dictionaries with values in this form from now on.
    pub(crate) fn set_form(&self, form: FormPolicy) {
        if let Some(forms) = &self.forms {
            // A trainer that has ended needs no form.
            let _ = forms.send(form);
        }
    }
}

impl Drop for TrainerThread {
    fn drop(&mut self) {
        self.forms = None;
        let Some(thread) = self.thread.take() else { return };
        // The thread may wait for a worker that hangs. It then ends with the process.
        let deadline = Instant::now() + JOIN_LIMIT;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(JOIN_POLL);
        }
        if thread.is_finished() {
            // A panic of the trainer was logged, and values are stored without new dictionaries since.
            let _ = thread.join();
        }
    }
}

fn run(
    mut trainer: Trainer,
    clock: &dyn Clock,
    after_turn: impl Fn(bool),
    new_forms: &Receiver<FormPolicy>,
) {
    // On Linux this concerns the calling thread only.
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "the trainer keeps the priority of the workers");
    }
    let mut next_turn = Instant::now() + TURN_EVERY;
    loop {
        match new_forms.recv_timeout(next_turn.saturating_duration_since(Instant::now())) {
            Ok(form) => trainer.set_form(form),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let before = cpu_time();
                after_turn(trainer.turn(clock.now()));
                let spent = cpu_time().saturating_sub(before);
                let rest = TURN_EVERY.max(spent.mul_f64(1.0 / CPU_SHARE - 1.0));
                next_turn = Instant::now() + rest;
            }
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The share of one core that training may take.
const CPU_SHARE: f64 = 0.05;

/// The shortest pause between two turns.
const TURN_EVERY: Duration = Duration::from_millis(250);

/// The longest wait for the end of the thread: a training takes some hundred milliseconds.
const JOIN_LIMIT: Duration = Duration::from_secs(1);

const JOIN_POLL: Duration = Duration::from_millis(1);

/// The increment of the nice value: the lowest priority.
const NICE: i32 = 19;
