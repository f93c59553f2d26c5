//! The RxEngine: it turns a packet into a record in App.Recv. A packet that cannot be read is
//! refused at the network, and the application's read keeps waiting.

use crate::command::{Address, Code};
use crate::flat::Build;
use crate::memory::{Memory, Unmapped};
use crate::record::{RECORD_HEAD_BYTES, Record};
use crate::wire::{MessageKind, Wire};

use super::side::Ready;
use super::{Engine, Half, State, Step, Work};

/// A packet and the address for its record.
#[derive(Debug)]
pub(super) struct RxJob {
    packet: Ready,
    to: Address,
    token: u64,
    outcome: Outcome,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// A record of this length is in App.Recv.
    Record { function: u32, sequence: i32, oneway: bool, length: usize },
    /// The packet is not valid.
    Refused(Code),
    /// App.Recv is not mapped. The packet is unchanged.
    NoPlace,
}

impl Engine {
    /// Advances the RxEngine by one state. Returns `None` if it must wait.
    pub fn step_rx(&mut self, memory: &mut (impl Memory + ?Sized)) -> Option<Step> {
        match self.rx.state {
            State::IdleRecv | State::IdleResp => self.rx_begin(),
            State::Busy => {
                let job = self.rx.job.as_ref()?;
                let (outcome, work) = self.receive(job.packet, job.to, job.token, memory);
                if let Some(job) = &mut self.rx.job {
                    job.outcome = outcome;
                }
                let step = self.rx.settle(Half::Rx, memory.in_flight())?;
                Some(Step { work, ..step })
            }
            State::Drain => self.rx.settle(Half::Rx, memory.in_flight()),
            State::Done => Some(self.rx_finish()),
        }
    }

    fn rx_begin(&mut self) -> Option<Step> {
        if self.flights.is_full() || !self.app.has_read() {
            return None;
        }
        let packet = self.net.begin()?;
        let (to, token) = self.app.claim().zip(self.flights.start(packet.at))?;
        self.rx.job = Some(RxJob { packet, to, token, outcome: Outcome::Refused(Code::Malformed) });
        Some(self.rx.enter(Half::Rx, State::Busy))
    }

    fn receive(
        &self,
        packet: Ready,
        to: Address,
        token: u64,
        memory: &mut (impl Memory + ?Sized),
    ) -> (Outcome, Work) {
        let (bytes, record) = match memory.pair(packet.at, packet.length, to) {
            Ok(pair) => pair,
            Err(Unmapped::From) => return (Outcome::Refused(Code::Unmapped), Work::default()),
            Err(Unmapped::To) => return (Outcome::NoPlace, Work::default()),
        };
        let mut work = Work { loaded_bytes: bytes.len(), ..Work::default() };
        let outcome = match self.deserialize(bytes, record, token, &mut work) {
            Ok(outcome) => outcome,
            Err(code) => Outcome::Refused(code),
        };
        (outcome, work)
    }

    /// Reads the header, finds the function and calls `recv`.
    fn deserialize(
        &self,
        packet: &[u8],
        record: &mut [u8],
        token: u64,
        work: &mut Work,
    ) -> Result<Outcome, Code> {
        let mut wire = Wire::framed(packet, self.limits.field_bytes_max)?;
        let message = wire.message()?;
        if !matches!(message.kind, MessageKind::Call | MessageKind::Oneway) {
            return Err(Code::Malformed);
        }
        let (flight, functions) = self.flights.find(token).ok_or(Code::Malformed)?;
        let function = functions.find(message.name).ok_or(Code::UnknownFunction)?;
        work.function = Some(function);
        let oneway = functions.function(function).is_some_and(|function| function.oneway);
        let (head, body) = record.split_at_mut_checked(RECORD_HEAD_BYTES).ok_or(Code::Oversized)?;
        let mut build = Build::new(body);
        functions.recv(function, &mut wire, &mut build)?;
        wire.end()?;
        let length = RECORD_HEAD_BYTES + build.used();
        // A oneway request awaits no answer, so it has token 0, which belongs to no request.
        Record::head(head, if oneway { 0 } else { token }, function, flight.generation);
        work.stored_bytes = length;
        Ok(Outcome::Record { function, sequence: message.sequence, oneway, length })
    }

    fn rx_finish(&mut self) -> Step {
        let Some(RxJob { packet, to, token, outcome }) = self.rx.job.take() else {
            return self.rx.finish(Half::Rx, false, None);
        };
        let mut released = None;
        let mut flies = false;
        match outcome {
            Outcome::Record { function, sequence, oneway, length } => {
                released = Some(packet.at);
                self.app.complete(Code::Done, length, to, to);
                self.flights.received(token, function, sequence);
                flies = !oneway;
                if oneway {
                    // The request gets no answer, but the network must learn that the engine has
                    // finished with the packet.
                    self.net.tell(Code::Done, packet.at);
                }
            }
            Outcome::Refused(code) => {
                self.app.unclaim(to);
                self.net.tell(code, packet.at);
            }
            Outcome::NoPlace => {
                self.app.complete(Code::Unmapped, 0, to, to);
                self.net.undo(packet);
            }
        }
        if !flies {
            self.flights.remove(token);
        }
        self.rx.finish(Half::Rx, self.net.waiting() > 0, released)
    }
}
