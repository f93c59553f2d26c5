//! Runs the command table against a server and compares two runs. The table declares which rows may differ.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::TIMEOUT;
use crate::answer::{Answer, CasNumbers, Ending, Piece, packet_pieces, pieces, same, shown};
use crate::client::{Client, Speech};
use crate::poll_for;
use crate::table::{Row, Step, expand};

/// A step of a row, as it was sent, and its answer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The bytes that were sent.
    pub sent: Vec<u8>,
    /// The answer to these bytes.
    pub answer: Answer,
    pieces: Vec<Piece>,
    /// The time from the beginning of the row to this answer (whole s).
    passed_s: i64,
}

impl Outcome {
    fn equals(&self, other: &Outcome) -> bool {
        let passed_s = self.passed_s.max(other.passed_s);
        self.answer.ending == other.answer.ending && same(&self.pieces, &other.pieces, passed_s)
    }
}

/// The description of a row whose outcome was not the expected one.
#[derive(Clone, Debug)]
pub struct Mismatch(pub String);

/// The number of conversations that run rows at the same time, so that waits for an expiry overlap.
const CONVERSATIONS: usize = 8;

/// Runs every row and returns the answers in the order of the rows.
///
/// # Panics
/// If the server stops accepting connections.
pub fn run(addr: SocketAddr, rows: &[Row]) -> Vec<Vec<Outcome>> {
    run_in(addr, rows, Speech::Text)
}

/// Runs every row in this protocol and returns the answers in the order of the rows.
///
/// # Panics
/// If the server stops accepting connections.
pub fn run_in(addr: SocketAddr, rows: &[Row], speech: Speech) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Vec<Outcome>>> = rows.iter().map(|_| Mutex::default()).collect();
    let put = |index: usize, found| {
        *outcomes[index].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found;
    };
    thread::scope(|scope| {
        for _ in 0..CONVERSATIONS {
            scope.spawn(|| {
                let mut conversation = Conversation::open(addr, speech);
                while let Some((index, row)) = next_row(rows, &next) {
                    if !row.exclusive {
                        put(index, conversation.row(row));
                    }
                }
            });
        }
    });
    let mut conversation = Conversation::open(addr, speech);
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.exclusive) {
        put(index, conversation.row(row));
    }
    let taken = outcomes.into_iter().map(|outcome| outcome.into_inner());
    taken.map(|outcome| outcome.unwrap_or_else(|poisoned| poisoned.into_inner())).collect()
}

/// Compares a configuration's answers with memcached's and returns the rows that are wrong.
pub fn mismatches(
    rows: &[Row],
    configuration: &str,
    reference: &[Vec<Outcome>],
    ours: &[Vec<Outcome>],
) -> Vec<Mismatch> {
    let runs = reference.iter().zip(ours);
    rows.iter().zip(runs).filter_map(|(row, (a, b))| mismatch(row, configuration, a, b)).collect()
}

fn next_row<'a>(rows: &'a [Row], next: &AtomicUsize) -> Option<(usize, &'a Row)> {
    let index = next.fetch_add(1, Ordering::SeqCst);
    rows.get(index).map(|row| (index, row))
}

fn mismatch(
    row: &Row,
    configuration: &str,
    reference: &[Outcome],
    ours: &[Outcome],
) -> Option<Mismatch> {
    let different = reference.iter().zip(ours).position(|(a, b)| !a.equals(b));
    let place = format!("[{}] {}", row.story, row.title);
    match (different, row.reason(configuration)) {
        (None, None) | (Some(_), Some(_)) => None,
        (None, Some(reason)) => Some(Mismatch(format!(
            "{place}\n  equal, though the table declares a difference: {reason}"
        ))),
        (Some(step), None) => Some(Mismatch(format!(
            "{place}, step {}\n  sent      {}\n  memcached {}\n  ours      {}",
            step + 1,
            shown(&reference[step].sent),
            described(&reference[step].answer, &ours[step].answer),
            described(&ours[step].answer, &reference[step].answer),
        ))),
    }
}

fn described(answer: &Answer, other: &Answer) -> String {
    let equal = answer.bytes.iter().zip(&other.bytes).take_while(|(a, b)| a == b).count();
    let from = equal.saturating_sub(40);
    let cut = if from > 0 { format!("(from byte {from}) ") } else { String::new() };
    let ending = match answer.ending {
        Ending::Complete => "",
        Ending::Closed => " <closed>",
        Ending::TimedOut => " <no answer in time>",
    };
    format!("{cut}\"{}\"{ending}", shown(&answer.bytes[from.min(answer.bytes.len())..]))
}

struct Conversation {
    addr: SocketAddr,
    client: Client,
    /// A second connection. Its round trip separates the two halves of a cut step.
    probe: Client,
    speech: Speech,
}

impl Conversation {
    fn open(addr: SocketAddr, speech: Speech) -> Self {
        Self { addr, client: connected(addr, speech), probe: connected(addr, speech), speech }
    }

    fn row(&mut self, row: &Row) -> Vec<Outcome> {
        let begun = Instant::now();
        let mut cas = CasNumbers::default();
        let mut outcomes = Vec::new();
        for step in &row.steps {
            let (sent, answer) = self.step(step, &cas);
            if answer.ending != Ending::Complete {
                self.client = connected(self.addr, self.speech);
            }
            let pieces = match self.speech {
                Speech::Text => pieces(&answer, &mut cas),
                Speech::Packets => packet_pieces(&answer, &mut cas),
            };
            let passed_s = begun.elapsed().as_secs() as i64;
            outcomes.push(Outcome { sent, answer, pieces, passed_s });
        }
        outcomes
    }

    fn step(&mut self, step: &Step, cas: &CasNumbers) -> (Vec<u8>, Answer) {
        match step {
            Step::Send(template) => {
                let sent = expand(template, cas);
                let answer = self.client.exchange(&sent);
                (sent, answer)
            }
            Step::Until(template, wanted) => {
                let (sent, wanted) = (expand(template, cas), expand(wanted, cas));
                let mut answer = self.client.exchange(&sent);
                poll_for(TIMEOUT, || {
                    if answer.bytes == wanted || answer.ending != Ending::Complete {
                        return Some(());
                    }
                    answer = self.client.exchange(&sent);
                    None
                });
                (sent, answer)
            }
            Step::Cuts(template) => {
                let sent = expand(template, cas);
                let mut all = Answer { bytes: Vec::new(), ending: Ending::Complete };
                for cut in 1..sent.len() {
                    let answer = self.cut(&sent, cut);
                    all.bytes.extend(answer.bytes);
                    all.ending = answer.ending;
                    if all.ending != Ending::Complete {
                        break;
                    }
                }
                (sent, all)
            }
        }
    }

    /// Sends `bytes` in two writes. A round trip between the writes gives the server time to read the first part.
    fn cut(&mut self, bytes: &[u8], at: usize) -> Answer {
        let (first, second) = bytes.split_at(at);
        let _closed = self.client.send(first);
        self.probe.exchange(b"");
        self.client.exchange(second)
    }
}

/// Opens a connection and makes one exchange on it. memcached uses the first byte of a connection to choose the
/// protocol.
fn connected(addr: SocketAddr, speech: Speech) -> Client {
    let mut client = Client::connect(addr)
        .unwrap_or_else(|error| panic!("{addr} refuses a connection: {error}"));
    client.speech = speech;
    client.exchange(b"");
    client
}
