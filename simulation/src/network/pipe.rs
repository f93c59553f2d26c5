//! One direction of a connection: segments on their way, and bytes that have arrived.

use std::collections::VecDeque;

/// What travels from one end to the other, in order.
#[derive(Debug)]
pub(super) enum Segment {
    /// The connection attempt of a client.
    Open,
    /// The answer to it.
    Accepted,
    /// The answer to it, if nobody listens.
    Refused,
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// The segments on their way, with the times at which they arrive (ms).
    in_flight: VecDeque<(u64, Segment)>,
    in_flight_bytes: usize,
    arrived: VecDeque<u8>,
    /// The time at which the last byte has left, where the rate is limited (µs).
    busy_until_us: u64,
    pub(super) has_ended: bool,
}

impl Pipe {
    /// Sends a segment, which arrives after those before it. Returns the time at which it does.
    pub(super) fn send(&mut self, at_ms: u64, segment: Segment) -> u64 {
        let at_ms = self.in_flight.back().map_or(at_ms, |(last, _)| at_ms.max(*last));
        if let Segment::Bytes(bytes) = &segment {
            self.in_flight_bytes += bytes.len();
        }
        self.in_flight.push_back((at_ms, segment));
        at_ms
    }

    /// Returns the time at which these bytes have left after those before them, at a rate (bytes per ms).
    pub(super) fn transfer(&mut self, now_ms: u64, bytes: u64, bytes_per_ms: u64) -> u64 {
        let from_us = self.busy_until_us.max(now_ms * 1_000);
        self.busy_until_us = from_us + bytes * 1_000 / bytes_per_ms;
        self.busy_until_us.div_ceil(1_000)
    }

    /// Returns the next segment that has arrived, or the time at which the next one does.
    pub(super) fn next(&mut self, now_ms: u64) -> Result<Segment, Option<u64>> {
        match self.in_flight.front() {
            None => Err(None),
            Some((at_ms, _)) if *at_ms > now_ms => Err(Some(*at_ms)),
            Some(_) => {
                let (_, segment) = self.in_flight.pop_front().ok_or(None)?;
                if let Segment::Bytes(bytes) = &segment {
                    self.in_flight_bytes -= bytes.len();
                }
                Ok(segment)
            }
        }
    }

    pub(super) fn arrive(&mut self, bytes: &[u8]) {
        self.arrived.extend(bytes);
    }

    /// Drops everything that is on its way.
    pub(super) fn drop_in_flight(&mut self) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
    }

    /// Returns the bytes that are on their way or have not been read.
    pub(super) fn held_bytes(&self) -> usize {
        self.in_flight_bytes + self.arrived.len()
    }

    pub(super) fn arrived_bytes(&self) -> usize {
        self.arrived.len()
    }

    pub(super) fn read(&mut self, space: &mut [u8]) -> usize {
        let bytes = space.len().min(self.arrived.len());
        let (first, second) = self.arrived.as_slices();
        let split = bytes.min(first.len());
        space[..split].copy_from_slice(&first[..split]);
        space[split..bytes].copy_from_slice(&second[..bytes - split]);
        self.arrived.drain(..bytes);
        bytes
    }
}
