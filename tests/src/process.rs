//! A child process that is watched while it lives: its output is kept, its death is noticed at once, and it
//! never outlives its handle. It knows nothing about what the process serves.

use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::bystander::rss_bytes;
use crate::{PATIENCE, poll_for};

/// A running child; dropping it kills it and waits.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    words: String,
}

impl Process {
    /// Starts `command` with its output kept.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    /// Starts `command` with its standard output kept and its standard error sent elsewhere.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub fn start_with(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let words = format!("{command:?}");
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{words} does not start: {error}"));
        let lines = Arc::default();
        let readers = [keep(child.stdout.take(), &lines), keep(child.stderr.take(), &lines)];
        Self { child, lines, readers: readers.into_iter().flatten().collect(), words }
    }

    /// The process id, as /proc and signals name it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything the process has printed, both streams: all of it once its end was noticed, until then what has come.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Waits until a printed line has `text`: the two streams come in no order, and behind answers and signals.
    ///
    /// # Panics
    /// If there is none within our patience.
    pub fn await_printed(&self, text: &str) {
        let is_there = poll_for(PATIENCE, || self.output().contains(text).then_some(()));
        assert!(is_there.is_some(), "no {text:?} in\n{}", self.output());
    }

    /// Returns what follows `label` in the first printed line that starts with it.
    pub fn printed(&self, label: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find_map(|line| line.strip_prefix(label)).map(|rest| rest.trim().to_owned())
    }

    /// Waits until `probe` answers; fails at once, with the output, when the process dies first.
    ///
    /// # Panics
    /// If the process dies or `limit` passes before `probe` answers.
    pub fn await_ready<T>(
        &mut self,
        limit: Duration,
        what: &str,
        probe: impl Fn(&Self) -> Option<T>,
    ) -> T {
        let found = poll_for(limit, || match probe(self) {
            Some(found) => Some(Ok(found)),
            None => self.exited().map(Err),
        });
        match found {
            Some(Ok(found)) => found,
            Some(Err(status)) => panic!("{} died: {status}\n{}", self.words, self.output()),
            None => panic!("{}: no {what} within {limit:?}\n{}", self.words, self.output()),
        }
    }

    /// Sends a signal; a process that is gone is left in peace.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process(pid, signal);
        }
    }

    /// Stops the process as a hung one stands. At the return no thread of it runs any more: `kill` only sends the
    /// signal, and a thread on another core may answer a request before it takes it.
    ///
    /// # Panics
    /// If it has ended, or a thread still runs after our patience.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let stands = poll_for(PATIENCE, || {
            let states = self.thread_states().unwrap_or_default();
            let has_ended = states.contains(&'Z');
            (has_ended || !states.is_empty() && states.iter().all(|&state| state == 'T'))
                .then_some(!has_ended)
        });
        assert_eq!(stands, Some(true), "{} does not stand still\n{}", self.words, self.output());
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns what each of its threads does now, in the letters of proc(5).
    fn thread_states(&self) -> Option<Vec<char>> {
        let state = |task: DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            // The name before it, in parentheses, may have any character.
            stat.rsplit_once(')')?.1.trim_start().chars().next()
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
        tasks.map(|task| state(task.ok()?)).collect()
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        // A child of the child may have the streams still.
        poll_for(PATIENCE, || self.readers.iter().all(JoinHandle::is_finished).then_some(()));
        Some(status)
    }

    /// Waits at most `limit` for the process to end.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll_for(limit, || self.exited())
    }

    /// Kills with SIGKILL and waits.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        self.exited();
    }

    /// Resident memory now (bytes), from /proc.
    pub fn rss_bytes(&self) -> Option<u64> {
        rss_bytes(self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keep(
    stream: Option<impl Read + Send + 'static>,
    lines: &Arc<Mutex<Vec<String>>>,
) -> Option<JoinHandle<()>> {
    let (stream, lines) = (stream?, Arc::clone(lines));
    Some(thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }))
}
