//! Clients that do what a well-behaved client does not. They use keys of their own.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use server::simulated::Connection;
use units::Prng;

use super::login_line;
use crate::network::{Endpoint, Host};
use crate::world::World;

/// A kind of client that disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// Sends bytes that are no command.
    Garbage,
    /// Begins values and does not finish them.
    HalfValues,
    /// Asks for much and reads nothing.
    Deaf,
    /// Sends its commands byte by byte.
    Slow,
    /// Opens many connections and leaves them.
    Crowd,
    /// Sends lines and values that are too long.
    TooLong,
    /// Closes each connection amid a command.
    Hasty,
    /// Asks for many large values again and again, and reads all of them.
    Greedy,
    /// Has many connections, each of which sends a large value byte by byte.
    SlowWriters,
    /// Has many connections, each of which asks for a large value and reads nothing.
    NeverReaders,
    /// Watches what all clients do.
    Watcher,
    /// Watches, and reads nothing.
    DeafWatcher,
    /// Asks for everything that a server tells of itself and its items.
    Curious,
}

impl Hostile {
    /// The kinds that misbehave.
    pub const ATTACKERS: [Hostile; 10] = [
        Hostile::Garbage,
        Hostile::HalfValues,
        Hostile::Deaf,
        Hostile::Slow,
        Hostile::Crowd,
        Hostile::TooLong,
        Hostile::Hasty,
        Hostile::Greedy,
        Hostile::SlowWriters,
        Hostile::NeverReaders,
    ];

    /// The kinds that look at what others do.
    pub const ONLOOKERS: [Hostile; 3] = [Hostile::Watcher, Hostile::DeafWatcher, Hostile::Curious];

    /// Returns whether this client logs in first, if clients do. The others are strangers then.
    fn logs_in(self) -> bool {
        !matches!(self, Hostile::Garbage | Hostile::Crowd | Hostile::Hasty)
    }

    /// Returns whether this client holds memory of the server for values in flight.
    pub fn holds_memory(self) -> bool {
        matches!(
            self,
            Hostile::HalfValues | Hostile::Deaf | Hostile::SlowWriters | Hostile::NeverReaders
        )
    }
}

/// Disturbs a frontend until the end of the disturbance.
pub async fn disturb(
    world: Rc<World>,
    host: Host,
    frontend: String,
    (kind, logs_in): (Hostile, bool),
    seed: u64,
) {
    let mut random = Prng::new(seed);
    // It goes in front of whatever else is sent.
    let login = if logs_in && kind.logs_in() { login_line() } else { Vec::new() };
    if matches!(kind, Hostile::SlowWriters | Hostile::NeverReaders) {
        return disturb_with_many(&world, host, &frontend, (kind, &login)).await;
    }
    let act = async {
        let mut kept = Vec::new();
        for round in 0..ROUNDS {
            if let Ok(connection) = world.net.of_host(host).connect_to(&frontend).await {
                let limit = Duration::from_millis(500 + random.below(4_000));
                let act = async {
                    connection.write_all(&login).await?;
                    act(&connection, kind, &mut random, round).await
                };
                let _ = tokio::time::timeout(limit, act).await;
                // The others leave their connection, with whatever it has unread.
                if matches!(kind, Hostile::Crowd | Hostile::HalfValues) {
                    kept.push(connection);
                }
            }
            let pause_ms = if kind == Hostile::Crowd { 1 } else { 1 + random.below(100) };
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        world.over().await;
    };
    tokio::select! {
        biased;
        () = world.over() => {}
        () = act => {}
    }
}

/// Keeps many connections to a frontend until the end of the disturbance, and opens new ones for those that end.
async fn disturb_with_many(
    world: &World,
    host: Host,
    frontend: &str,
    (kind, login): (Hostile, &[u8]),
) {
    let mut connections: Vec<Option<Endpoint>> = Vec::new();
    connections.resize_with(CONNECTIONS, || None);
    let act = async {
        if kind == Hostile::NeverReaders
            && let Ok(connection) = world.net.of_host(host).connect_to(frontend).await
        {
            let value = vec![b'n'; LONG_BYTES];
            let _ = connection.write_all(login).await;
            let command = format!("set hostile:inflates 0 0 {}\r\n", value.len());
            let _ = connection.write_all(command.as_bytes()).await;
            let _ = connection.write_all(&value).await;
            let _ = connection.write_all(b"\r\n").await;
            let _ = connection.read(&mut [0; 64]).await;
        }
        loop {
            for place in &mut connections {
                let written = match place {
                    // A byte of the value.
                    Some(connection) if kind == Hostile::SlowWriters => {
                        connection.try_write(&[IoSlice::new(b"s")]).map(drop)
                    }
                    Some(_) => Ok(()),
                    None => Err(io::ErrorKind::NotConnected.into()),
                };
                let has_ended =
                    written.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
                if has_ended {
                    *place = begin_one(world, host, frontend, (kind, login)).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    };
    tokio::select! {
        biased;
        () = world.over() => {}
        () = act => {}
    }
}

/// Opens a connection and sends the beginning of a large value, or requests for many of them.
async fn begin_one(
    world: &World,
    host: Host,
    frontend: &str,
    (kind, login): (Hostile, &[u8]),
) -> Option<Endpoint> {
    let network = world.net.of_host(host);
    let connecting = network.connect_to(frontend);
    let connection =
        tokio::time::timeout(Duration::from_millis(100), connecting).await.ok()?.ok()?;
    let command = match kind {
        Hostile::SlowWriters => b"set hostile:slow 0 0 900000\r\n".to_vec(),
        _ => b"get hostile:inflates\r\n".repeat(LONG_READS),
    };
    let _ = connection.try_write(&[IoSlice::new(login), IoSlice::new(&command)]);
    Some(connection)
}

async fn act(
    connection: &Endpoint,
    kind: Hostile,
    random: &mut Prng,
    round: u64,
) -> io::Result<()> {
    let mut space = vec![0; 4 << 10];
    match kind {
        Hostile::Garbage => {
            let mut bytes = vec![0; 1 + random.below(3_000) as usize];
            random.fill(&mut bytes);
            // The first byte of packets is avoided half of the time.
            bytes[0] = if random.below(2) == 0 { b'x' } else { 0x80 };
            connection.write_all(&bytes).await?;
            while connection.read(&mut space).await? > 0 {}
        }
        Hostile::HalfValues => {
            let bytes = 1 + random.below(900_000);
            let line = format!("set hostile:{round} 0 0 {bytes}\r\n");
            connection.write_all(line.as_bytes()).await?;
            let part = vec![b'p'; random.below(bytes) as usize];
            connection.write_all(&part).await?;
        }
        Hostile::Deaf => {
            let value = vec![b'd'; 200_000];
            connection.write_all(b"set hostile:deaf 0 0 200000\r\n").await?;
            connection.write_all(&value).await?;
            connection.write_all(b"\r\n").await?;
            loop {
                connection.write_all(b"get hostile:deaf hostile:deaf\r\n").await?;
            }
        }
        Hostile::Slow => {
            for byte in b"set hostile:slow 0 0 5\r\nvalue\r\nget hostile:slow\r\n" {
                connection.write_all(&[*byte]).await?;
                tokio::time::sleep(Duration::from_millis(20 + random.below(100))).await;
            }
        }
        Hostile::Crowd | Hostile::SlowWriters | Hostile::NeverReaders => {}
        Hostile::Watcher => {
            connection.write_all(WATCH).await?;
            while connection.read(&mut space).await? > 0 {}
        }
        Hostile::DeafWatcher => {
            connection.write_all(WATCH).await?;
            std::future::pending::<()>().await;
        }
        Hostile::Curious => {
            connection.write_all(QUESTIONS).await?;
            while connection.read(&mut space).await? > 0 {}
        }
        Hostile::Greedy => be_greedy(connection, random, &mut space).await?,
        Hostile::TooLong => {
            let key = "k".repeat(1 + random.below(5_000) as usize);
            connection.write_all(format!("get {key}\r\n").as_bytes()).await?;
            let bytes = 1_000_000 + random.below(200_000);
            connection.write_all(format!("set hostile 0 0 {bytes}\r\n").as_bytes()).await?;
            connection.write_all(&vec![b'l'; bytes as usize]).await?;
            connection.write_all(b"\r\nset hostile 0 0 -1\r\nms hostile S\r\nmg\r\n").await?;
            while connection.read(&mut space).await? > 0 {}
        }
        Hostile::Hasty => {
            let commands = b"gets hostile:a hostile:b\r\nset hostile:a 0 0 10\r\n0123456789\r\n";
            let bytes = 1 + random.below(commands.len() as u64) as usize;
            connection.write_all(&commands[..bytes]).await?;
        }
    }
    Ok(())
}

/// Stores large values, asks for all of them again and again, and reads the answers.
async fn be_greedy(connection: &Endpoint, random: &mut Prng, space: &mut [u8]) -> io::Result<()> {
    let mut get = b"get".to_vec();
    for key in 0..GREEDY_KEYS {
        let mut value = vec![0; GREEDY_BYTES];
        random.fill(&mut value);
        let line = format!("set hostile:greedy{key} 0 0 {GREEDY_BYTES}\r\n");
        connection.write_all(line.as_bytes()).await?;
        connection.write_all(&value).await?;
        connection.write_all(b"\r\n").await?;
        get.extend_from_slice(format!(" hostile:greedy{key}").as_bytes());
    }
    get.extend_from_slice(b"\r\n");
    let gets = get.repeat(GREEDY_GETS);
    let write = connection.write_all(&gets);
    let read = async {
        while connection.read(space).await? > 0 {}
        Ok(())
    };
    tokio::try_join!(write, read)?;
    Ok(())
}

const WATCH: &[u8] = b"watch fetchers mutations evictions connevents deletions\r\n";
/// None of these changes anything.
const QUESTIONS: &[u8] = b"stats\r\nstats settings\r\nstats items\r\nstats slabs\r\nstats sizes\r\n\
    stats conns\r\nstats rebate\r\nstats dictionaries\r\nstats cachedump 1 10\r\nlru_crawler metadump all\r\n\
    lru_crawler mgdump all\r\nme reg:0\r\nme app:1\r\nversion\r\nmn\r\nverbosity 1\r\nslabs automove 0\r\n\
    lru_crawler crawl all\r\nstats detail dump\r\nlru_crawler tocrawl 5\r\n";
/// The connections of a client that has many.
const CONNECTIONS: usize = 70;
/// The gets that each connection of [`Hostile::NeverReaders`] sends, and the length of the value (bytes).
const LONG_READS: usize = 20;
const LONG_BYTES: usize = 900_000;
/// The bytes that [`Hostile::NeverReaders`] may have asked a store for when it ends. A value that finds no memory is
/// read a second time.
pub const ASKED_BYTES_MAX: u64 = (2 * CONNECTIONS * LONG_READS * LONG_BYTES) as u64;
/// The values that a greedy client asks for, their size and the gets of all of them that it sends at once.
const GREEDY_KEYS: usize = 8;
const GREEDY_BYTES: usize = 60_000;
const GREEDY_GETS: usize = 8;
/// The connections that one client makes.
const ROUNDS: u64 = 40;
