//! Decides whether clients should be sent to the process. It asks every worker twice a second which servers of the ring
//! answer it, judges the answers by `server.ready_when`, and tells the admin pages, gRPC health and the log. A worker
//! that does not answer delays the others for no longer than a stated time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;

use crate::config::ReadyWhen;
use crate::grpc::Health;
use crate::probe::Findings;
use crate::supervise::Vitals;
use crate::worker::{Worker, WorkerMessage};

/// The known state of the process's servers and workers.
pub(crate) struct Readiness {
    draining: AtomicBool,
    /// The addresses of the ring's servers; empty with the embedded store.
    servers: Vec<String>,
    rule: RwLock<ReadyWhen>,
    vitals: Arc<Vitals>,
    view: watch::Sender<Option<View>>,
}

/// The workers' findings of one round of questions.
#[derive(Clone)]
pub(crate) struct View {
    begun: Instant,
    /// The findings by worker; none for a worker that did not answer.
    workers: Vec<Option<Findings>>,
}

/// The answer to a health check: its text, as an error if no clients should be sent.
pub(crate) type Answer = Result<String, String>;

impl Readiness {
    pub(crate) fn new(servers: Vec<String>, rule: ReadyWhen, vitals: Arc<Vitals>) -> Self {
        Self {
            draining: AtomicBool::new(false),
            servers,
            rule: RwLock::new(rule),
            vitals,
            view: watch::Sender::new(None),
        }
    }

    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_rule(&self, rule: ReadyWhen) {
        *self.rule.write() = rule;
    }

    /// Asks the workers again and again, for as long as the future is polled.
    pub(crate) async fn run(&self, workers: &[Worker], health: &Health) {
        let mut round = Round { pending: workers.iter().map(|_| None).collect() };
        let mut last_begun = Instant::now();
        let mut was_ready = true;
        loop {
            let begun = Instant::now();
            let found = round.ask(workers).await;
            self.vitals.look(begun.duration_since(last_begun));
            last_begun = begun;
            self.view.send_replace(Some(View { begun, workers: found }));
            let answer = self.judge();
            match &answer {
                Err(why) if was_ready && !self.is_draining() => {
                    tracing::warn!("not ready: {}", why.lines().next().unwrap_or_default());
                }
                Ok(_) if !was_ready => tracing::info!("ready again"),
                _ => {}
            }
            was_ready = answer.is_ok();
            health.set(was_ready, !self.is_draining() && self.vitals.problem().is_none()).await;
            tokio::time::sleep(EVERY.saturating_sub(begun.elapsed()).max(PAUSE_MIN)).await;
        }
    }

    /// Returns the answer to a health check. If the process has just started, or stood still as a whole, the answer
    /// waits for the workers' next answers.
    pub(crate) async fn check(&self) -> Answer {
        let is_fresh = |view: &Option<View>| {
            self.is_draining() || view.as_ref().is_some_and(|view| view.begun.elapsed() < FRESH)
        };
        let mut view = self.view.subscribe();
        let _ = tokio::time::timeout(CHECK_LIMIT, view.wait_for(is_fresh)).await;
        self.judge()
    }

    /// Returns, for each worker, its servers and whether they answered it.
    pub(crate) fn links(&self) -> Vec<(usize, String, bool)> {
        let view = self.view.borrow();
        let workers = view.iter().flat_map(|view| view.workers.iter().enumerate());
        let of_worker = |(worker, found): (usize, &Option<Findings>)| {
            let up = |index: usize| found.as_ref().is_some_and(|found| found[index].is_none());
            let servers = self.servers.iter().enumerate();
            servers.map(|(index, server)| (worker, server.clone(), up(index))).collect::<Vec<_>>()
        };
        workers.flat_map(of_worker).collect()
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the answer that follows from the state that is known now.
    pub(crate) fn judge(&self) -> Answer {
        if self.is_draining() {
            return Err("draining".to_owned());
        }
        if let Some(problem) = self.vitals.problem() {
            return Err(problem);
        }
        let view = self.view.borrow();
        let Some(view) = view.as_ref().filter(|view| view.begun.elapsed() < STALE) else {
            return Err("the workers were not asked yet".to_owned());
        };
        judge(&self.servers, *self.rule.read(), &view.workers)
    }
}

/// One round of questions to all workers.
struct Round {
    /// For each worker, the question of an earlier round that it has not answered yet. Such a worker gets no second
    /// question.
    pending: Vec<Option<oneshot::Receiver<Findings>>>,
}

impl Round {
    async fn ask(&mut self, workers: &[Worker]) -> Vec<Option<Findings>> {
        let due = tokio::time::Instant::now() + WORKER_LIMIT;
        for (worker, pending) in workers.iter().zip(&mut self.pending) {
            let is_over = pending.as_mut().is_none_or(|pending| {
                // An answer that comes now is what the worker found in the last round.
                !matches!(pending.try_recv(), Err(TryRecvError::Empty))
            });
            if is_over {
                let (tell, told) = oneshot::channel();
                worker.tell(WorkerMessage::Probe(tell));
                *pending = Some(told);
            }
        }
        let mut found = Vec::with_capacity(workers.len());
        for pending in &mut self.pending {
            let Some(told) = pending else {
                found.push(None);
                continue;
            };
            found.push(match tokio::time::timeout_at(due, told).await {
                Ok(answer) => {
                    *pending = None;
                    answer.ok()
                }
                Err(_) => None,
            });
        }
        found
    }
}

fn judge(servers: &[String], rule: ReadyWhen, workers: &[Option<Findings>]) -> Answer {
    let mut ready = Ok(());
    // The workers that miss a server, by server and reason.
    let mut away: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (worker, found) in workers.iter().enumerate() {
        let Some(found) = found else {
            let limit = WORKER_LIMIT.as_millis();
            ready = ready.and(Err(format!("worker {worker} did not answer within {limit} ms")));
            continue;
        };
        let answered = found.iter().filter(|why| why.is_none()).count();
        let wanted = rule.wanted(found.len());
        if answered < wanted {
            ready = ready.and(Err(format!(
                "worker {worker} has answers of {answered} of {} servers, and \
                 server.ready_when = \"{}\" wants {wanted}",
                found.len(),
                rule.name()
            )));
        }
        for (server, why) in servers.iter().zip(found) {
            if let Some(why) = why {
                away.entry((server, why)).or_default().push(worker);
            }
        }
    }
    let mut text = match &ready {
        Ok(()) => "ok".to_owned(),
        Err(why) => why.clone(),
    };
    for ((server, why), workers) in away {
        let workers: Vec<_> = workers.iter().map(ToString::to_string).collect();
        let _ = write!(text, "\n{server} is away for workers {}: {why}", workers.join(", "));
    }
    ready.map(|()| text.clone()).map_err(|_| text)
}

/// The time from the beginning of one round of questions to the beginning of the next.
const EVERY: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The time in which a worker must answer, its servers' time included. With the pause, and with a round that one worker
/// delays, a change shows within 2 s.
const WORKER_LIMIT: Duration = Duration::from_secs(1);
/// The age up to which a view is fresh. If the view is older, this thread did not run for a time.
const FRESH: Duration = Duration::from_secs(2);
/// The age from which a view tells nothing about the present.
const STALE: Duration = Duration::from_secs(5);
/// The longest time that a health check takes. Most probers wait for one second or more.
const CHECK_LIMIT: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<String> {
        ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec()
    }

    fn found(up: [bool; 3]) -> Option<Findings> {
        Some(up.map(|up| (!up).then(|| "down: refused".to_owned())).to_vec())
    }

    #[test]
    fn the_rule_says_how_many_servers_must_answer() {
        for (up, any, most, all) in [
            ([true, true, true], true, true, true),
            ([true, true, false], true, true, false),
            ([true, false, false], true, false, false),
            ([false, false, false], false, false, false),
        ] {
            for (rule, wanted) in
                [(ReadyWhen::Any, any), (ReadyWhen::Most, most), (ReadyWhen::All, all)]
            {
                let answer = judge(&servers(), rule, &[found(up)]);
                assert_eq!(answer.is_ok(), wanted, "{up:?} {rule:?} {answer:?}");
            }
        }
    }

    #[test]
    fn servers_that_are_away_are_named_with_the_workers() {
        let workers = [found([true, false, true]), found([true, false, true])];
        let told = judge(&servers(), ReadyWhen::Any, &workers);
        assert_eq!(told, Ok("ok\nb:1 is away for workers 0, 1: down: refused".to_owned()));
    }

    #[test]
    fn every_worker_must_be_ready() {
        let workers = [found([true; 3]), found([false; 3])];
        let why = judge(&servers(), ReadyWhen::Any, &workers).expect_err("worker 1 has none");
        assert!(why.starts_with("worker 1 has answers of 0 of 3 servers"), "{why}");
        let why = judge(&[], ReadyWhen::Any, &[Some(Vec::new()), None]).expect_err("one is stuck");
        assert_eq!(why, "worker 1 did not answer within 1000 ms");
    }

    #[test]
    fn the_embedded_store_is_ready_by_any_rule() {
        for rule in [ReadyWhen::Any, ReadyWhen::Most, ReadyWhen::All] {
            assert_eq!(judge(&[], rule, &[Some(Vec::new())]), Ok("ok".to_owned()));
        }
    }
}
