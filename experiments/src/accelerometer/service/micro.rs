//! The inputs of a microbenchmark: the bytes that the kernel reads for each request that calls it, and the other bytes
//! that the request reads. They are copies of the stored values at the time when the microbenchmark is made. The module
//! runs nothing.

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use units::Prng;

use crate::accelerometer::service::cache::{HEADER_BYTES, Header, Service};
use crate::accelerometer::service::filler::Filler;
use crate::accelerometer::service::load::Load;
use crate::accelerometer::service::request::{ENCRYPTED, Request};
use crate::accelerometer::service::runner::Kernel;

/// A microbenchmark's inputs, and the work that replaces the service.
pub(crate) struct Micro {
    pub(crate) kernel: Kernel,
    /// The calls, in the order of the load's requests.
    pub(crate) calls: Vec<Call>,
    /// The index of the call of each of the load's requests, or None if the request calls no kernel. `reads` has the
    /// bytes that each request reads.
    pub(crate) of_request: Vec<Option<usize>>,
    pub(crate) reads: Vec<Bytes>,
    pub(crate) filler: Filler,
    /// The buffer for a value that is encrypted next.
    pub(crate) scratch: Vec<u8>,
    /// The indices of the drawn calls, sorted by size and shuffled within each quarter.
    drawn: Vec<usize>,
}

/// A position in a cycle through some of the calls.
pub(crate) struct Steps {
    range: Range<usize>,
    at: usize,
}

/// One call of the tested kernel.
pub(crate) struct Call {
    /// The bytes that the kernel reads.
    pub(crate) input: Bytes,
    /// The size of the decompressed bytes.
    pub(crate) original_bytes: usize,
    pub(crate) is_get: bool,
}

impl Micro {
    /// Makes the inputs for the requests of a load.
    ///
    /// # Errors
    /// The load calls no kernel, or a stored value is missing or cannot be decoded.
    pub(crate) fn new(service: &Service, load: &Load, kernel: Kernel) -> Result<Self, String> {
        let (mut calls, mut of_request, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for request in load.requests() {
            let stored = service.stored(&request.key).ok_or("a key that is not there")?;
            let is_called = kernel.is_called_by(request);
            of_request.push(is_called.then_some(calls.len()));
            if is_called {
                calls.push(Call::from_request(service, kernel, request, &stored)?);
            }
            reads.push(if request.is_get { stored } else { request.value.clone() });
        }
        let drawn = drawn(load, kernel, &calls, &of_request);
        if drawn.is_empty() {
            return Err("the load calls no kernel".to_owned());
        }
        let (filler, scratch) = (Filler::default(), Vec::new());
        Ok(Self { kernel, calls, of_request, reads, filler, scratch, drawn })
    }

    /// Returns a cycle through all calls, or through those of one quarter by size. The seed determines where it starts.
    pub(crate) fn steps(&self, quarter: Option<usize>, seed: u64) -> Steps {
        let size = self.drawn.len().div_ceil(QUARTERS);
        let range = match quarter {
            None => 0..self.drawn.len(),
            Some(quarter) => quarter * size..((quarter + 1) * size).min(self.drawn.len()),
        };
        let at = range.start + Prng::new(seed).below(range.len().max(1) as u64) as usize;
        Steps { range, at }
    }

    /// Returns the index of the next call and advances the cycle.
    pub(crate) fn step(&self, steps: &mut Steps) -> usize {
        let index = self.drawn[steps.at];
        steps.at += 1;
        if steps.at == steps.range.end {
            steps.at = steps.range.start;
        }
        index
    }

    /// Repeats what the service did with a call's input just before the call, so that the input is in the core's cache.
    pub(crate) fn touch(&mut self, index: usize) {
        let Call { input, is_get, .. } = &self.calls[index];
        match self.kernel {
            // The service stored the input a while ago, or a client has just sent it, so there is nothing to do.
            Kernel::Cipher if *is_get => {}
            Kernel::Compress => {}
            Kernel::Cipher => {
                self.scratch.clear();
                self.scratch.extend_from_slice(input);
            }
            Kernel::Checksum | Kernel::Decompress => {
                black_box(crc32c::crc32c(input));
            }
        }
    }
}

impl Call {
    /// Makes the call of `kernel` that the service makes for this request. A kernel is encryption and decryption,
    /// checksums, compression or decompression. `stored` is the stored form of the value of the request's key.
    fn from_request(
        service: &Service,
        kernel: Kernel,
        request: &Request,
        stored: &Bytes,
    ) -> Result<Self, String> {
        let original_bytes = Header::read(stored)?.original_bytes as usize;
        let payload = || match request.flags & ENCRYPTED {
            0 => Ok(stored.slice(HEADER_BYTES..)),
            // The bytes are copied, because the pool's buffers belong to the service.
            _ => {
                service.unseal(&stored[HEADER_BYTES..]).map(|plain| Bytes::copy_from_slice(&plain))
            }
        };
        let input = match kernel {
            Kernel::Cipher if request.is_get => stored.clone(),
            // The kernel encrypts the header and the payload, so both are in the input.
            Kernel::Cipher => Bytes::from([&stored[..HEADER_BYTES], &payload()?[..]].concat()),
            Kernel::Checksum | Kernel::Decompress => payload()?,
            Kernel::Compress => request.value.clone(),
        };
        Ok(Self { input, original_bytes, is_get: request.is_get })
    }
}

/// Returns the indices of the calls that the load makes, sorted by size and shuffled within each quarter.
fn drawn(load: &Load, kernel: Kernel, calls: &[Call], of_request: &[Option<usize>]) -> Vec<usize> {
    let mut random = Prng::new(CALLS_SEED);
    let drawn = (0..CALLS * DRAWS_MAX).filter_map(|_| of_request[load.draw(&mut random).index]);
    let mut drawn: Vec<usize> = drawn.take(CALLS).collect();
    drawn.sort_by_key(|index| calls[*index].input.len());
    if kernel == Kernel::Checksum {
        // The service checks bytes that it has just written or decrypted. With few inputs, the inputs stay in the
        // core's cache too.
        let step = drawn.len().div_ceil(HOT_CALLS).max(1);
        drawn = drawn.into_iter().skip(step / 2).step_by(step).collect();
    }
    let quarter = drawn.len().div_ceil(QUARTERS).max(1);
    drawn.chunks_mut(quarter).for_each(|quarter| shuffle(quarter, &mut random));
    drawn
}

fn shuffle(items: &mut [usize], random: &mut Prng) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// The number of inputs of a microbenchmark of the kernel alone.
const CALLS: usize = 4_096;
/// The number of inputs of a microbenchmark whose inputs are in the core's cache.
const HOT_CALLS: usize = 16;
const CALLS_SEED: u64 = 5;
/// The greatest number of draws per input. A kernel that few requests call therefore has fewer inputs.
const DRAWS_MAX: usize = 64;
/// The number of parts into which the calls are divided by size.
pub(crate) const QUARTERS: usize = 4;
