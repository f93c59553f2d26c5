//! The TxEngine: it turns a response in App.Resp into a frame in Net.Resp. An invalid response is
//! refused at the application. Its request then stays in flight, and the network's read keeps
//! waiting.

use crate::command::{Address, Code};
use crate::memory::{Memory, Unmapped};
use crate::record::Response;
use crate::wire::{Message, MessageKind, Writer, exception};

use super::side::Ready;
use super::{Engine, Half, State, Step, Work};

/// A response and the address for its frame.
#[derive(Debug)]
pub(super) struct TxJob {
    response: Ready,
    to: Address,
    outcome: Outcome,
}

/// The outcome of a response.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// A frame of this length is in Net.Resp.
    Frame { token: u64, packet: Address, length: usize },
    /// The response is not valid.
    Refused(Code),
    /// Net.Resp is not mapped. The response is unchanged.
    NoPlace,
}

impl Engine {
    /// Advances the TxEngine by one state. Returns `None` if it must wait.
    pub fn step_tx(&mut self, memory: &mut (impl Memory + ?Sized)) -> Option<Step> {
        match self.tx.state {
            State::IdleRecv | State::IdleResp => self.tx_begin(),
            State::Busy => {
                let job = self.tx.job.as_ref()?;
                let (outcome, work) = self.respond(job.response, job.to, memory);
                if let Some(job) = &mut self.tx.job {
                    job.outcome = outcome;
                }
                let step = self.tx.settle(Half::Tx, memory.in_flight())?;
                Some(Step { work, ..step })
            }
            State::Drain => self.tx.settle(Half::Tx, memory.in_flight()),
            State::Done => Some(self.tx_finish()),
        }
    }

    fn tx_begin(&mut self) -> Option<Step> {
        if !self.net.has_read() {
            return None;
        }
        let response = self.app.begin()?;
        let to = self.net.claim()?;
        self.tx.job = Some(TxJob { response, to, outcome: Outcome::Refused(Code::Malformed) });
        Some(self.tx.enter(Half::Tx, State::Busy))
    }

    fn respond(
        &self,
        response: Ready,
        to: Address,
        memory: &mut (impl Memory + ?Sized),
    ) -> (Outcome, Work) {
        let (record, frame) = match memory.pair(response.at, response.length, to) {
            Ok(pair) => pair,
            Err(Unmapped::From) => return (Outcome::Refused(Code::Unmapped), Work::default()),
            Err(Unmapped::To) => return (Outcome::NoPlace, Work::default()),
        };
        let mut work = Work { loaded_bytes: record.len(), ..Work::default() };
        let outcome = match self.serialize(record, frame, &mut work) {
            Ok(outcome) => outcome,
            Err(code) => Outcome::Refused(code),
        };
        (outcome, work)
    }

    /// Calls `resp` and writes the header.
    fn serialize(&self, record: &[u8], frame: &mut [u8], work: &mut Work) -> Result<Outcome, Code> {
        let response = Response::read(record)?;
        let (flight, functions) = self.flights.find(response.token).ok_or(Code::Malformed)?;
        let (number, sequence) = flight.received.ok_or(Code::Malformed)?;
        let function = functions.function(number).ok_or(Code::UnknownFunction)?;
        work.function = Some(number);
        let name = function.name.as_bytes();
        let length = match response.what {
            Err(code) => exception(name, sequence, code, frame)?,
            Ok(block) => {
                let mut out = Writer::framed(frame)?;
                out.message(&Message { kind: MessageKind::Reply, name, sequence })?;
                functions.resp(number, block, &mut out)?;
                out.frame()?
            }
        };
        work.stored_bytes = length;
        Ok(Outcome::Frame { token: response.token, packet: flight.packet, length })
    }

    fn tx_finish(&mut self) -> Step {
        let Some(TxJob { response, to, outcome }) = self.tx.job.take() else {
            return self.tx.finish(Half::Tx, false, None);
        };
        let mut released = None;
        match outcome {
            Outcome::Frame { token, packet, length } => {
                released = Some(response.at);
                self.flights.remove(token);
                self.net.complete(Code::Done, length, to, packet);
            }
            Outcome::Refused(code) => {
                self.net.unclaim(to);
                self.app.tell(code, response.at);
            }
            Outcome::NoPlace => {
                self.net.complete(Code::Unmapped, 0, to, to);
                self.app.undo(response);
            }
        }
        self.tx.finish(Half::Tx, self.app.waiting() > 0, released)
    }
}
