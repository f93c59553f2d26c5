//! One end of a connection, which behaves like a non-blocking TCP socket.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::task::{Context, Poll};

use server::simulated::Connection;

use super::agenda::Event;
use super::pipe::Segment;
use super::{End, Net, Pair, State};

/// One end of a connection. Dropping it closes it, with a reset if there are bytes that were not read.
pub struct Endpoint {
    net: Net,
    id: u64,
    /// 0 for the end that connected, 1 for the end that accepted.
    end: usize,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "end {} of connection {}", self.end, self.id)
    }
}

impl Endpoint {
    pub(super) fn new(net: Net, id: u64, end: usize) -> Self {
        Self { net, id, end }
    }

    /// Returns the number of the connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Reads some bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// The reason for the connection's end.
    pub async fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.try_read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|task| self.poll_readable(task)).await?;
                }
                result => return result,
            }
        }
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// The reason for the connection's end.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|task| self.poll_writable(task)).await?;
                }
                written => bytes = &bytes[written?..],
            }
        }
        Ok(())
    }

    /// Calls `act` with the state of the connection. A connection that is forgotten has ended.
    fn with<T>(&self, act: impl FnOnce(&mut State, &mut Pair) -> T) -> Option<T> {
        let mut state = self.net.state.lock();
        // It is taken out for the call, so that `act` may use the rest of the state.
        let mut pair = state.connections.remove(&self.id)?;
        let result = act(&mut state, &mut pair);
        state.connections.insert(self.id, pair);
        Some(result)
    }

    fn is_write_blocked(state: &mut State, pair: &Pair, end: usize) -> bool {
        let room = state.weather.window_bytes.saturating_sub(pair.pipes[end].held_bytes());
        room == 0 || state.now_ms() < pair.ends[end].blocked_until_ms
    }

    fn write(&self, state: &mut State, pair: &mut Pair, slices: &[IoSlice<'_>]) -> io::Result<u64> {
        let (this, weather) = (&mut pair.ends[self.end], state.weather);
        if let Some(failure) = this.failure {
            return Err(failure.into());
        }
        if this.has_shut_down {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if Self::is_write_blocked(state, pair, self.end) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if state.happens(weather.blocked_writes) {
            let until_ms = state.now_ms() + 1 + state.random.below(weather.delay_max_ms.max(1));
            pair.ends[self.end].blocked_until_ms = until_ms;
            state.schedule(until_ms, Event::Unblocked(self.id, self.end));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room = weather.window_bytes - pair.pipes[self.end].held_bytes();
        let mut taken = Vec::new();
        for slice in slices {
            let part = slice.len().min(room - taken.len());
            taken.extend_from_slice(&slice[..part]);
        }
        if taken.len() > 1 && state.happens(weather.short_writes) {
            taken.truncate(1 + state.random.below(taken.len() as u64 - 1) as usize);
        }
        let bytes = taken.len() as u64;
        let mut at_ms = state.now_ms() + state.draw_delay_ms();
        if let Some(rate) = weather.store_bytes_per_ms
            && pair.ends.iter().any(|end| end.host.is_store())
        {
            let left_ms = pair.pipes[self.end].transfer(state.now_ms(), bytes, rate);
            at_ms = at_ms.max(left_ms);
        }
        let at_ms = pair.pipes[self.end].send(at_ms, Segment::Bytes(taken));
        state.schedule(at_ms, Event::Arrival(self.id, self.end));
        Ok(bytes)
    }

    fn read_now(&self, state: &mut State, pair: &mut Pair, space: &mut [u8]) -> io::Result<usize> {
        let pipe = &mut pair.pipes[1 - self.end];
        let arrived = pipe.arrived_bytes();
        if arrived == 0 {
            return match pair.ends[self.end].failure {
                Some(failure) => Err(failure.into()),
                None if pipe.has_ended => Ok(0),
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let mut most = arrived.min(space.len());
        if most > 1 && state.happens(state.weather.short_reads) {
            most = 1 + state.random.below(most as u64 - 1) as usize;
        }
        let bytes = pipe.read(&mut space[..most]);
        // The writer has room again.
        pair.ends[1 - self.end].wake();
        Ok(bytes)
    }
}

impl Connection for Endpoint {
    fn descriptor(&self) -> RawFd {
        // Each connection has one number on both hosts, which is as good as two.
        RawFd::try_from(self.id).unwrap_or(RawFd::MAX)
    }

    fn local_address(&self) -> SocketAddr {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.with(|_, pair| pair.ends[self.end].address).unwrap_or(unknown)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.with(|_, pair| {
            let pipe = &pair.pipes[1 - self.end];
            let this: &mut End = &mut pair.ends[self.end];
            let is_ready = pipe.arrived_bytes() > 0 || pipe.has_ended || this.failure.is_some();
            if !is_ready {
                this.read_waker = Some(context.waker().clone());
            }
            is_ready
        });
        if ready.unwrap_or(true) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.with(|state, pair| {
            let is_blocked = Self::is_write_blocked(state, pair, self.end);
            let this = &mut pair.ends[self.end];
            let is_ready = this.failure.is_some() || this.has_shut_down || !is_blocked;
            if !is_ready {
                this.write_waker = Some(context.waker().clone());
            }
            is_ready
        });
        if ready.unwrap_or(true) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        let read = self.with(|state, pair| self.read_now(state, pair, space));
        read.unwrap_or(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.with(|state, pair| self.write(state, pair, slices));
        let written = written.unwrap_or(Err(io::ErrorKind::ConnectionReset.into()));
        written.map(|bytes| bytes as usize)
    }

    fn shut_down(&self) {
        let is_first = self.with(|_, pair| {
            !std::mem::replace(&mut pair.ends[self.end].has_shut_down, true)
                && pair.ends[self.end].failure.is_none()
        });
        if is_first == Some(true) {
            self.net.state.lock().send(self.id, self.end, Segment::End);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.net.state.lock().close(self.id, self.end);
    }
}
