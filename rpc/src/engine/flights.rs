//! The requests in flight and the loaded services. This module finds the request of a token and the
//! functions of its service. A token that is not in flight belongs to no request.

use std::sync::Arc;

use crate::command::Address;
use crate::functions::Functions;

/// A request in flight. It begins when the RxEngine starts on its packet.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub(super) token: u64,
    pub(super) generation: u32,
    /// The address of the request's packet.
    pub(super) packet: Address,
    /// The function and the caller's sequence number. They are known once the application has the request.
    pub(super) received: Option<(u32, i32)>,
}

impl Flight {
    /// Returns the engine's number for the request. The request's record has the same number.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the address of the request's packet, which [`crate::Completion::about`] also names.
    pub fn packet(&self) -> Address {
        self.packet
    }
}

#[derive(Debug)]
struct Loaded {
    generation: u32,
    functions: Arc<dyn Functions>,
    flights: usize,
    /// Whether flights of this service may still arrive from another engine.
    expects: bool,
}

impl Loaded {
    fn new(generation: u32, functions: Arc<dyn Functions>) -> Self {
        Self { generation, functions, flights: 0, expects: false }
    }
}

#[derive(Debug)]
pub(super) struct Flights {
    /// The flights, indexed by place. A token is a serial number times the number of places, plus the place.
    places: Vec<Option<Flight>>,
    free: Vec<usize>,
    serial: u64,
    /// The loaded services. The last service is the current one.
    loaded: Vec<Loaded>,
}

impl Flights {
    pub(super) fn new(flights_max: usize, functions: Arc<dyn Functions>) -> Self {
        Self {
            places: vec![None; flights_max],
            free: (0..flights_max).rev().collect(),
            serial: 0,
            loaded: vec![Loaded::new(1, functions)],
        }
    }

    pub(super) fn load(&mut self, functions: Arc<dyn Functions>) -> u32 {
        let generation = self.current().generation.wrapping_add(1);
        self.loaded.push(Loaded::new(generation, functions));
        self.prune();
        generation
    }

    /// Loads functions as [`Flights::load`] does. It keeps the services that were loaded before
    /// until [`Flights::all_arrived`].
    pub(super) fn load_ahead(&mut self, functions: Arc<dyn Functions>) -> u32 {
        self.loaded.iter_mut().for_each(|loaded| loaded.expects = true);
        self.load(functions)
    }

    pub(super) fn all_arrived(&mut self) {
        self.loaded.iter_mut().for_each(|loaded| loaded.expects = false);
        self.prune();
    }

    /// Drops services that are neither current nor needed by a flight.
    fn prune(&mut self) {
        let current = self.current().generation;
        self.loaded
            .retain(|loaded| loaded.flights > 0 || loaded.expects || loaded.generation == current);
    }

    pub(super) fn generations(&self) -> usize {
        self.loaded.len()
    }

    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Starts the flight of a packet with the current functions and returns its token. Returns
    /// `None` if no place is free.
    pub(super) fn start(&mut self, packet: Address) -> Option<u64> {
        let place = self.free.pop()?;
        self.serial += 1;
        let token = self.serial * self.places.len() as u64 + place as u64;
        let current = self.loaded.last_mut()?;
        current.flights += 1;
        let generation = current.generation;
        self.places[place] = Some(Flight { token, generation, packet, received: None });
        Some(token)
    }

    /// Records that the application has the request.
    pub(super) fn received(&mut self, token: u64, function: u32, sequence: i32) {
        let place = self.place(token);
        if let Some(flight) = self.places[place].as_mut().filter(|flight| flight.token == token) {
            flight.received = Some((function, sequence));
        }
    }

    /// Returns the request with this token, and the functions of its service.
    pub(super) fn find(&self, token: u64) -> Option<(Flight, &dyn Functions)> {
        let flight = self.places[self.place(token)].filter(|flight| flight.token == token)?;
        let same_generation = |loaded: &&Loaded| loaded.generation == flight.generation;
        let loaded = self.loaded.iter().find(same_generation)?;
        Some((flight, &*loaded.functions))
    }

    /// Adds a request that another engine received, at the same place as in that engine. The place
    /// is free here, because the other engine gives a place to at most one request at a time.
    /// Returns false if the place is not free, or if the request's functions were never loaded.
    pub(super) fn arrive(&mut self, flight: Flight) -> bool {
        let place = self.place(flight.token);
        let same_generation = |loaded: &&mut Loaded| loaded.generation == flight.generation;
        let Some(loaded) = self.loaded.iter_mut().find(same_generation) else { return false };
        if self.places[place].is_some() {
            return false;
        }
        loaded.flights += 1;
        self.free.retain(|free| *free != place);
        self.places[place] = Some(flight);
        true
    }

    /// Ends a flight, because its request was answered or its packet was not a valid request.
    pub(super) fn remove(&mut self, token: u64) {
        let place = self.place(token);
        let Some(flight) = self.places[place].take_if(|flight| flight.token == token) else {
            return;
        };
        self.free.push(place);
        for loaded in &mut self.loaded {
            loaded.flights -= usize::from(loaded.generation == flight.generation);
        }
        self.prune();
    }

    fn place(&self, token: u64) -> usize {
        (token % self.places.len() as u64) as usize
    }

    fn current(&self) -> &Loaded {
        self.loaded.last().expect("one service is always loaded")
    }
}
