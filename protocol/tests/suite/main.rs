//! The tests of the protocol. All are in one program, because each program more takes time to compile and to link.

mod binary;
mod lines;
mod memcached;
mod replies;
mod round_trip;
