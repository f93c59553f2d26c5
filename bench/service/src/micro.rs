//! The inputs of a microbenchmark: what the kernel reads for each request that calls it and what the request reads
//! besides, as they are stored when it is made. It runs nothing.

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use units::Prng;

use crate::filler::Filler;
use crate::load::Load;
use crate::request::{ENCRYPTED, Request};
use crate::runner::Kernel;
use crate::service::{HEADER_BYTES, Header, Service};

/// A microbenchmark's inputs, and what stands for the service.
pub(crate) struct Micro {
    pub(crate) kernel: Kernel,
    /// In the order of requests.
    pub(crate) calls: Vec<Call>,
    /// By the load's request: its call, where it has one, and what it reads.
    pub(crate) of_request: Vec<Option<usize>>,
    pub(crate) reads: Vec<Bytes>,
    pub(crate) filler: Filler,
    /// A value that is about to be encrypted.
    pub(crate) scratch: Vec<u8>,
    /// Calls as they are drawn, by size; within a quarter in any order.
    drawn: Vec<usize>,
}

/// A way round some of the calls.
pub(crate) struct Steps {
    range: Range<usize>,
    at: usize,
}

/// One call of the kernel.
pub(crate) struct Call {
    /// What the kernel reads.
    pub(crate) input: Bytes,
    /// Of what is decompressed.
    pub(crate) original_bytes: usize,
    pub(crate) is_get: bool,
}

impl Micro {
    /// For the requests of a load.
    ///
    /// # Errors
    /// A load that calls no kernel, or a value that is not as it was stored.
    pub(crate) fn new(service: &Service, load: &Load, kernel: Kernel) -> Result<Self, String> {
        let (mut calls, mut of_request, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for request in load.requests() {
            let stored = service.stored(&request.key).ok_or("a key that is not there")?;
            let is_called = kernel.is_called_by(request);
            of_request.push(is_called.then_some(calls.len()));
            if is_called {
                calls.push(Call::of(service, kernel, request, &stored)?);
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

    /// The call of each step, of all sizes or of a quarter, from a place that the seed says.
    pub(crate) fn steps(&self, quarter: Option<usize>, seed: u64) -> Steps {
        let size = self.drawn.len().div_ceil(QUARTERS);
        let range = match quarter {
            None => 0..self.drawn.len(),
            Some(own) => own * size..((own + 1) * size).min(self.drawn.len()),
        };
        let at = range.start + Prng::new(seed).below(range.len().max(1) as u64) as usize;
        Steps { range, at }
    }

    /// The next call.
    pub(crate) fn step(&self, steps: &mut Steps) -> usize {
        let index = self.drawn[steps.at];
        steps.at += 1;
        if steps.at == steps.range.end {
            steps.at = steps.range.start;
        }
        index
    }

    /// What the service did with the input of a call just before it: the core's cache has it.
    pub(crate) fn touch(&mut self, index: usize) {
        let Call { input, is_get, .. } = &self.calls[index];
        match self.kernel {
            // Stored a while ago, or just come from a client.
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
    /// That a request makes of the kernel.
    fn of(
        service: &Service,
        kernel: Kernel,
        request: &Request,
        stored: &Bytes,
    ) -> Result<Self, String> {
        let original_bytes = Header::read(stored)?.original_bytes as usize;
        let payload = || match request.flags & ENCRYPTED {
            0 => Ok(stored.slice(HEADER_BYTES..)),
            // The pool's buffers are the service's.
            _ => service.unseal(&stored[HEADER_BYTES..]).map(|own| Bytes::copy_from_slice(&own)),
        };
        let input = match kernel {
            Kernel::Cipher if request.is_get => stored.clone(),
            // As it is when it is encrypted: header, then payload.
            Kernel::Cipher => Bytes::from([&stored[..HEADER_BYTES], &payload()?[..]].concat()),
            Kernel::Checksum | Kernel::Decompress => payload()?,
            Kernel::Compress => request.value.clone(),
        };
        Ok(Self { input, original_bytes, is_get: request.is_get })
    }
}

/// Calls as the load makes them, sorted by size and shuffled within each quarter.
fn drawn(load: &Load, kernel: Kernel, calls: &[Call], of_request: &[Option<usize>]) -> Vec<usize> {
    let mut random = Prng::new(CALLS_SEED);
    let drawn = (0..CALLS * DRAWS_MAX).filter_map(|_| of_request[load.draw(&mut random).index]);
    let mut drawn: Vec<usize> = drawn.take(CALLS).collect();
    drawn.sort_by_key(|index| calls[*index].input.len());
    if kernel == Kernel::Checksum {
        // The service checks what it just wrote or decrypted: these few stay in the core's cache too.
        let step = drawn.len().div_ceil(HOT_CALLS).max(1);
        drawn = drawn.into_iter().skip(step / 2).step_by(step).collect();
    }
    let quarter = drawn.len().div_ceil(QUARTERS).max(1);
    drawn.chunks_mut(quarter).for_each(|own| shuffle(own, &mut random));
    drawn
}

fn shuffle(items: &mut [usize], random: &mut Prng) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Inputs of a microbenchmark of the kernel alone.
const CALLS: usize = 4_096;
/// Inputs of one that finds them in the core's cache.
const HOT_CALLS: usize = 16;
const CALLS_SEED: u64 = 5;
/// Draws for each: a kernel that fewer requests call has fewer inputs.
const DRAWS_MAX: usize = 64;
/// The calls by size.
pub const QUARTERS: usize = 4;
