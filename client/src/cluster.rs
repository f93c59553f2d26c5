//! Several caches, each of which owns a part of the keys.

use std::fmt;

use store::{Distribution, Ring};

use crate::client::{Begun, KEYS_AT_ONCE};
use crate::{Client, Entry, Error, Item, Options, Server, Stored, Write};

/// A client of several caches. It assigns keys to caches as libmemcached does; with one cache, all keys belong to it. A
/// cache that is lost keeps its keys: requests for them fail until it is back.
pub struct Cluster {
    servers: Vec<Server>,
    /// One for each server, in the same order.
    clients: Vec<Client>,
    ring: Ring,
}

impl Cluster {
    /// Makes a client of these caches. A text is one cache, see [`Server`]. It does not connect yet.
    ///
    /// # Errors
    /// One of them is no server, or there is none.
    pub fn new(
        servers: &[impl AsRef<str>],
        distribution: Distribution,
        options: Options,
    ) -> Result<Self, Error> {
        let servers = servers.iter().map(|server| server.as_ref().parse());
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(Error::NoAddress);
        }
        let hashed: Vec<store::Server> = servers.iter().map(Server::hashed).collect();
        let client = |server: &Server| Client::with_addresses(server.addresses.clone(), options);
        let clients = servers.iter().map(client).collect();
        Ok(Self { servers, clients, ring: Ring::new(&hashed, distribution) })
    }

    /// Returns the servers in the order in which they were given.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the index of the server that owns a key.
    pub fn owner(&self, key: &[u8]) -> usize {
        self.ring.server(key)
    }

    /// Returns the clients of the servers, for commands that have no key.
    pub fn clients(&mut self) -> &mut [Client] {
        &mut self.clients
    }

    /// Returns the client of the server that owns a key, for commands with one key.
    pub fn client(&mut self, key: &[u8]) -> &mut Client {
        let owner = self.ring.server(key);
        &mut self.clients[owner]
    }

    /// See [`Client::get`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Item>, Error> {
        self.client(key).get(key)
    }

    /// See [`Client::get_and_touch`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn get_and_touch(&mut self, key: &[u8], exptime_s: u32) -> Result<Option<Item>, Error> {
        self.client(key).get_and_touch(key, exptime_s)
    }

    /// Returns the items of several keys, in the order of the keys. All servers that own some work at the same time.
    ///
    /// # Errors
    /// [`Error`], if a server fails, even if others have answered.
    pub fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Vec<Option<Item>>, Error> {
        if let [client] = &mut self.clients[..] {
            return client.get_many(keys);
        }
        let mut indexes: Vec<Vec<usize>> = vec![Vec::new(); self.clients.len()];
        for (index, key) in keys.iter().enumerate() {
            indexes[self.ring.server(key.as_ref())].push(index);
        }
        let mut items = vec![None; keys.len()];
        let rounds = indexes.iter().map(|indexes| indexes.len().div_ceil(KEYS_AT_ONCE)).max();
        for round in 0..rounds.unwrap_or(0) {
            let share = |server: usize| indexes[server].chunks(KEYS_AT_ONCE).nth(round);
            self.get_round(keys, share, &mut items)?;
        }
        Ok(items)
    }

    /// Gets the keys with the indexes `share(server)` of each server that has any.
    fn get_round<'i, K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        share: impl Fn(usize) -> Option<&'i [usize]>,
        items: &mut [Option<Item>],
    ) -> Result<(), Error> {
        let part = |server: usize| -> Vec<&[u8]> {
            let indexes = share(server).unwrap_or_default();
            indexes.iter().map(|index| keys[*index].as_ref()).collect()
        };
        let mut begun: Vec<Result<Option<Begun>, Error>> = Vec::with_capacity(self.clients.len());
        for (server, client) in self.clients.iter_mut().enumerate() {
            let keys = part(server);
            begun.push(if keys.is_empty() { Ok(None) } else { client.begin_get(&keys) });
        }
        let mut problem = None;
        // Every answer is taken, or the next call would find it.
        for (server, begun) in begun.into_iter().enumerate() {
            let Some(indexes) = share(server) else { continue };
            let client = &mut self.clients[server];
            let finished = begun.and_then(|begun| match begun {
                Some(begun) => client.finish_get(&begun),
                None => Ok(None),
            });
            let got = match finished {
                Ok(Some(got)) => Ok(got),
                // The connection was lost, and a get may be sent again.
                Ok(None) => client.get_many(&part(server)),
                Err(error) => Err(error),
            };
            match got {
                Ok(got) => {
                    for (index, item) in indexes.iter().zip(got) {
                        items[*index] = item;
                    }
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// See [`Client::set`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn set(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<u64, Error> {
        self.client(key).set(key, value, write)
    }

    /// See [`Client::set_many`].
    ///
    /// # Errors
    /// [`Error`], the first server's that fails; the values of the others are stored.
    pub fn set_many(&mut self, entries: &[Entry<'_>]) -> Result<Vec<Result<u64, Error>>, Error> {
        self.scattered(entries, |entry| entry.key, Client::set_many)
    }

    /// See [`Client::delete_many`].
    ///
    /// # Errors
    /// [`Error`], the first server's that fails; the items of the others are deleted.
    pub fn delete_many(&mut self, keys: &[&[u8]]) -> Result<Vec<bool>, Error> {
        self.scattered(keys, |key| key, |client, keys| client.delete_many(keys))
    }

    /// Has each server handle its part of the entries. Returns the outcomes in the order of the entries.
    fn scattered<E: Copy, T>(
        &mut self,
        entries: &[E],
        key: impl Fn(&E) -> &[u8],
        handle: impl Fn(&mut Client, &[E]) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        if let [client] = &mut self.clients[..] {
            return handle(client, entries);
        }
        let mut parts: Vec<(Vec<usize>, Vec<E>)> = vec![Default::default(); self.clients.len()];
        for (index, entry) in entries.iter().enumerate() {
            let (indexes, part) = &mut parts[self.ring.server(key(entry))];
            indexes.push(index);
            part.push(*entry);
        }
        let mut outcomes: Vec<(usize, T)> = Vec::with_capacity(entries.len());
        let mut problem = None;
        for (client, (indexes, part)) in self.clients.iter_mut().zip(parts) {
            let handled = if part.is_empty() { Ok(Vec::new()) } else { handle(client, &part) };
            match handled {
                Ok(handled) => outcomes.extend(indexes.into_iter().zip(handled)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        problem.map_or(Ok(outcomes), Err)
    }

    /// See [`Client::add`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn add(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<Stored, Error> {
        self.client(key).add(key, value, write)
    }

    /// See [`Client::replace`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn replace(&mut self, key: &[u8], value: &[u8], write: Write) -> Result<Stored, Error> {
        self.client(key).replace(key, value, write)
    }

    /// See [`Client::append`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<Stored, Error> {
        self.client(key).append(key, value)
    }

    /// See [`Client::prepend`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn prepend(&mut self, key: &[u8], value: &[u8]) -> Result<Stored, Error> {
        self.client(key).prepend(key, value)
    }

    /// See [`Client::cas`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn cas(
        &mut self,
        key: &[u8],
        value: &[u8],
        write: Write,
        cas: u64,
    ) -> Result<Stored, Error> {
        self.client(key).cas(key, value, write, cas)
    }

    /// See [`Client::delete`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.client(key).delete(key)
    }

    /// See [`Client::touch`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn touch(&mut self, key: &[u8], exptime_s: u32) -> Result<bool, Error> {
        self.client(key).touch(key, exptime_s)
    }

    /// See [`Client::increment`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn increment(&mut self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.client(key).increment(key, delta)
    }

    /// See [`Client::decrement`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn decrement(&mut self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.client(key).decrement(key, delta)
    }

    /// Removes all items of all servers, at once or after a delay. All servers are asked, even if one fails.
    ///
    /// # Errors
    /// [`Error`], the first server's that fails.
    pub fn flush(&mut self, delay_s: u32) -> Result<(), Error> {
        let flushed: Vec<_> = self.clients.iter_mut().map(|one| one.flush(delay_s)).collect();
        flushed.into_iter().collect()
    }

    /// Returns a page of statistics of each server, in their order, see [`Client::stats`].
    ///
    /// # Errors
    /// [`Error`], if a server fails.
    pub fn stats(&mut self, page: &str) -> Result<Vec<Vec<(String, String)>>, Error> {
        self.clients.iter_mut().map(|client| client.stats(page)).collect()
    }

    /// Returns the version of each server, in their order.
    ///
    /// # Errors
    /// [`Error`], if a server fails.
    pub fn versions(&mut self) -> Result<Vec<String>, Error> {
        self.clients.iter_mut().map(Client::version).collect()
    }

    /// Closes the connections. The next calls open new ones.
    pub fn close(&mut self) {
        self.clients.iter_mut().for_each(Client::close);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("clients", &self.clients).finish()
    }
}
