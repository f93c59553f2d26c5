//! The services and their wiring: listeners, sessions, connections to memcached servers, admin pages, configuration.
//! Decisions are `policy`'s, (de)compression is a device's, the stored form is `store`'s; this room moves bytes between
//! them and answers clients.

pub mod config;
pub mod config_source;
