//! The tests of the protocol. They are one program, because each further one takes time to link.

mod binary;
mod lines;
mod memcached;
mod replies;
mod round_trip;
