//! The two ends of a near connection: bytes arrive in order, a side that sleeps is woken, and a peer that breaks the
//! rules harms only itself.

mod attack;
mod hostile;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use device::near::NearStream;
use drivers::near::{NearClient, RING_BYTES};
use tempfile::TempDir;
use units::Prng;

/// The longest that a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(60);

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

/// A listener whose connections a thread of the test serves.
struct Listener {
    socket: UnixListener,
    folder: TempDir,
}

impl Listener {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixListener::bind(folder.path().join("near")).expect("listens");
        Self { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("near")
    }

    /// Serves the next connection with `serve` in a thread.
    fn serve<F>(&self, serve: F) -> JoinHandle<io::Result<()>>
    where
        F: AsyncFnOnce(&dyn NearStream) -> io::Result<()> + Send + 'static,
    {
        let socket = self.socket.try_clone().expect("a descriptor");
        thread::spawn(move || serve_stream(socket.accept().expect("a client").0, serve))
    }
}

/// Serves one connection on an event loop of its own.
fn serve_stream<F>(stream: UnixStream, serve: F) -> io::Result<()>
where
    F: AsyncFnOnce(&dyn NearStream) -> io::Result<()>,
{
    stream.set_nonblocking(true)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let near = drivers::near::watch(stream)?;
        poll_fn(|task| near.poll_greeting(task)).await?;
        serve(&*near).await
    })
}

/// Reads available bytes, as soon as there are any.
async fn read(near: &dyn NearStream, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match near.try_read(space) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|task| near.poll_readable(task)).await?;
            }
            read => return read,
        }
    }
}

async fn write_all(near: &dyn NearStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match near.try_write(&[IoSlice::new(bytes)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|task| near.poll_writable(task)).await?;
            }
            written => bytes = &bytes[written?..],
        }
    }
    Ok(())
}

/// Sends everything back until the end.
async fn echo(near: &dyn NearStream) -> io::Result<()> {
    let mut space = vec![0; 10_000];
    loop {
        let bytes = read(near, &mut space).await?;
        if bytes == 0 {
            return Ok(());
        }
        write_all(near, &space[..bytes]).await?;
    }
}

fn drawn(bytes: usize, seed: u64) -> Vec<u8> {
    let mut draws = Prng::new(seed);
    (0..bytes).map(|_| draws.bits() as u8).collect()
}

fn read_exact(client: &mut NearClient, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        let read = client.read(&mut all[filled..], deadline()).expect("bytes");
        assert!(read > 0, "the end after {filled} of {bytes} bytes");
        filled += read;
    }
    all
}

#[test]
fn bytes_come_back_whatever_their_number() {
    let listener = Listener::new();
    let served = listener.serve(async |near: &dyn NearStream| echo(near).await);
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    let mut draws = Prng::new(7);
    for round in 0..300 {
        // Many messages wrap around, and none is larger than both rings.
        let bytes = drawn((draws.bits() % 60_000) as usize + 1, round);
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let mut slices = [IoSlice::new(first), IoSlice::new(second)];
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let written = client.write(rest, deadline()).expect("room");
            IoSlice::advance_slices(&mut rest, written);
        }
        assert_eq!(read_exact(&mut client, bytes.len()), bytes, "round {round}");
        if round % 50 == 0 {
            // Longer than either side looks before it sleeps.
            thread::sleep(Duration::from_millis(2));
        }
    }
    drop(client);
    served.join().expect("no panic").expect("served");
}

#[test]
fn a_message_longer_than_the_ring_passes_in_parts() {
    const BYTES: usize = 5 * RING_BYTES as usize + 77;
    let listener = Listener::new();
    let served = listener.serve(async |near: &dyn NearStream| {
        let sent = drawn(BYTES, 1);
        let (mut got, mut space) = (Vec::new(), vec![0; 9_999]);
        while got.len() < BYTES {
            let bytes = read(near, &mut space).await?;
            got.extend_from_slice(&space[..bytes]);
        }
        assert!(got == sent, "the bytes differ");
        write_all(near, &got).await
    });
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    let sent = drawn(BYTES, 1);
    let mut rest = &sent[..];
    while !rest.is_empty() {
        let written = client.write(&[IoSlice::new(rest)], deadline()).expect("room");
        rest = &rest[written..];
    }
    assert!(read_exact(&mut client, BYTES) == sent, "the bytes differ");
    served.join().expect("no panic").expect("served");
}

#[test]
fn what_was_written_before_the_end_is_read() {
    let listener = Listener::new();
    let served = listener.serve(async |near: &dyn NearStream| {
        let mut space = [0; 16];
        let bytes = read(near, &mut space).await?;
        assert_eq!(&space[..bytes], b"last words");
        assert_eq!(read(near, &mut space).await?, 0, "the end");
        let error = near.try_write(&[IoSlice::new(b"x")]).expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    client.write(&[IoSlice::new(b"last words")], deadline()).expect("room");
    drop(client);
    served.join().expect("no panic").expect("served");
}

#[test]
fn a_server_that_ends_is_noticed_and_what_it_left_unread_is_known() {
    let listener = Listener::new();
    let served = listener.serve(async |near: &dyn NearStream| {
        let mut space = [0; 4];
        assert_eq!(read(near, &mut space).await?, 4);
        write_all(near, b"bye").await
    });
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    client.write(&[IoSlice::new(b"12345678")], deadline()).expect("room");
    assert_eq!(read_exact(&mut client, 3), b"bye");
    assert_eq!(client.read(&mut [0; 4], deadline()).expect("the end"), 0);
    assert!(client.has_unread_bytes(), "four of eight bytes");
    served.join().expect("no panic").expect("served");
}

#[test]
fn a_silent_server_costs_no_more_than_the_time_limit() {
    let listener = Listener::new();
    let soon = || Instant::now() + Duration::from_millis(50);
    let error = NearClient::connect(&listener.path(), soon()).expect_err("nobody greets");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let (stream, _) = listener.socket.accept().expect("it has tried");
    drop(stream);
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    let served = listener.serve(async move |_: &dyn NearStream| {
        // Blocks the loop until the test has seen the time limits.
        let _ = ended.recv();
        Ok(())
    });
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    let error = client.read(&mut [0; 4], soon()).expect_err("nothing comes");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let long = vec![0; RING_BYTES as usize];
    assert_eq!(client.write(&[IoSlice::new(&long)], soon()).expect("room"), long.len());
    let error = client.write(&[IoSlice::new(b"x")], soon()).expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(sender);
    served.join().expect("no panic").expect("served");
    let folder = tempfile::tempdir().expect("a folder");
    let error = NearClient::connect(&folder.path().join("none"), deadline()).expect_err("no file");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn one_sleep_costs_at_most_one_doorbell() {
    let listener = Listener::new();
    let served = listener.serve(async |near: &dyn NearStream| {
        echo(near).await?;
        let counters = near.take_counters();
        assert_eq!(counters.broken, 0);
        assert_eq!(near.take_counters(), Default::default(), "they were taken");
        // Each of the client's sleeps is rung at most once: two hundred answers, and the waits for the greeting.
        assert!(counters.doorbells <= 200, "{} doorbells", counters.doorbells);
        assert!(counters.sleeps > 0, "it has slept between messages");
        Ok(())
    });
    let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
    for round in 0..200 {
        client.write(&[IoSlice::new(b"ping")], deadline()).expect("room");
        assert_eq!(read_exact(&mut client, 4), b"ping");
        if round % 20 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    drop(client);
    served.join().expect("no panic").expect("served");
}
