//! The network of the server: connections whose client has sent everything before the server reads the first byte, and
//! takes every answer.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use server::simulated::{Connecting, Connection, Listener, Network as Simulated};

/// The connections that wait at the listeners of the host.
#[derive(Default)]
pub(super) struct Network(Arc<Mutex<HashMap<SocketAddr, Waiting>>>);

#[derive(Default)]
struct Waiting {
    connections: VecDeque<ServerEnd>,
    waker: Option<Waker>,
}

/// One connection. The server's end ends it.
#[derive(Debug, Default)]
struct State {
    input: Vec<u8>,
    read_bytes: usize,
    /// The lengths of reads and writes, in turn. Zero lets the server wait before it may go on.
    pieces: Vec<usize>,
    turn: usize,
    output: Vec<u8>,
    is_over: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct ServerEnd(SocketAddr, Arc<Mutex<State>>);

/// The server's tasks may panic, which the oracle notices.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Network {
    /// Sends bytes on a new connection to `address`, and returns all answers when the server has ended it.
    pub(super) async fn converse(
        &self,
        address: SocketAddr,
        input: Vec<u8>,
        pieces: &[usize],
    ) -> Vec<u8> {
        let state = State { input, pieces: pieces.to_vec(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        {
            let mut listeners = locked(&self.0);
            let waiting = listeners.entry(address).or_default();
            waiting.connections.push_back(ServerEnd(address, Arc::clone(&state)));
            wake(&mut waiting.waker);
        }
        poll_fn(|context| {
            let mut state = locked(&state);
            if state.is_over {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        // The worker counts the connection as closed when its task is gone.
        tokio::task::yield_now().await;
        let mut state = locked(&state);
        std::mem::take(&mut state.output)
    }
}

impl Simulated for Network {
    fn connect(&self, address: &str) -> Connecting {
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, address.to_owned());
        Box::pin(async { Err(error) })
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let address = address.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Box::new(Port(address, Arc::clone(&self.0))))
    }
}

struct Port(SocketAddr, Arc<Mutex<HashMap<SocketAddr, Waiting>>>);

impl Listener for Port {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn Connection>, SocketAddr)>> {
        let mut listeners = locked(&self.1);
        let waiting = listeners.entry(self.0).or_default();
        match waiting.connections.pop_front() {
            Some(connection) => {
                Poll::Ready(Ok((Box::new(connection), (Ipv4Addr::LOCALHOST, 3).into())))
            }
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl State {
    /// Returns the most bytes that the next read or write may move. Zero is one that has to wait.
    fn next_piece(&mut self) -> usize {
        if self.pieces.is_empty() {
            return usize::MAX;
        }
        self.turn += 1;
        self.pieces[self.turn % self.pieces.len()]
    }
}

impl Connection for ServerEnd {
    fn descriptor(&self) -> RawFd {
        3
    }

    fn local_address(&self) -> SocketAddr {
        self.0
    }

    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        let mut state = locked(&self.1);
        let piece = state.next_piece();
        if piece == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let rest = &state.input[state.read_bytes..];
        let bytes = rest.len().min(space.len()).min(piece);
        space[..bytes].copy_from_slice(&rest[..bytes]);
        state.read_bytes += bytes;
        Ok(bytes)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = locked(&self.1);
        let piece = state.next_piece();
        if piece == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let begin = state.output.len();
        for slice in slices {
            let left = piece - (state.output.len() - begin).min(piece);
            state.output.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        Ok(state.output.len() - begin)
    }

    fn shut_down(&self) {}
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        let mut state = locked(&self.1);
        state.is_over = true;
        wake(&mut state.waker);
    }
}
