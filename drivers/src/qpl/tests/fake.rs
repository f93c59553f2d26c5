//! The fake library. It writes stored blocks, reads any deflate stream, and computes checksums with the crates that
//! `device` uses. Each thread has its own script. The job state has two numbers behind the structure: the number of
//! checks left, and whether the processor ran the job.

use std::cell::{Cell, RefCell};
use std::slice;

use device::contract::inflate::inflate;

use super::super::abi::{RawJob, operation, path, status};
use super::super::library::Api;

/// The behaviour of the fake library on this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    /// The number of checks until a job is done.
    pub(super) checks: u32,
    pub(super) busy_submissions: u32,
    /// True if there is an IAA.
    pub(super) hardware: bool,
    /// The status with which a device refuses a job.
    pub(super) submit_status: u32,
    /// The status of a finished job, whatever its result is.
    pub(super) last_status: Option<u32>,
    /// The size that the fake states for a result.
    pub(super) written_bytes: Option<u32>,
    /// True if the processor does the job on the automatic path.
    pub(super) falls_back: bool,
    /// True if a device's job looks as if the processor had run it.
    pub(super) looks_like_software: bool,
    pub(super) job_bytes: u32,
    pub(super) init_status: u32,
    /// True if the state pointers are those of a library with a longer structure.
    pub(super) shifted_state: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            checks: 2,
            busy_submissions: 0,
            hardware: true,
            submit_status: status::OK,
            last_status: None,
            written_bytes: None,
            falls_back: false,
            looks_like_software: false,
            job_bytes: JOB_BYTES,
            init_status: status::OK,
            shifted_state: false,
        }
    }
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::new(Script::default());
    static INITIALISED: Cell<u32> = const { Cell::new(0) };
    static SUBMITTED: Cell<(u32, i32)> = const { Cell::new((0, 0)) };
}

pub(super) fn set(script: Script) {
    SCRIPT.set(script);
}

/// Returns the number of job structures that this thread has set up.
pub(super) fn initialised() -> u32 {
    INITIALISED.get()
}

/// Returns the flags and the NUMA choice of this thread's last submission.
pub(super) fn submitted() -> (u32, i32) {
    SUBMITTED.get()
}

pub(super) fn api() -> Api {
    Api { job_size, init, submit, check, finish, version: "1.6.0".to_owned() }
}

fn script() -> Script {
    SCRIPT.with_borrow(|script| *script)
}

unsafe extern "C" fn job_size(_path: u32, bytes: *mut u32) -> u32 {
    // SAFETY: the driver promises a valid pointer to one u32.
    unsafe { *bytes = script().job_bytes };
    status::OK
}

unsafe extern "C" fn init(path: u32, job: *mut RawJob) -> u32 {
    INITIALISED.set(INITIALISED.get() + 1);
    // SAFETY: the driver promises exclusive memory of `JOB_BYTES`. Zero is a valid value of every field.
    unsafe {
        job.cast::<u8>().write_bytes(0, JOB_BYTES as usize);
        let state = job.add(1).cast::<u8>();
        (*job).state = [state; 5];
        (*job).path = path;
        if script().shifted_state {
            (*job).state[4] = state.wrapping_add(1 << 30);
        }
    }
    match script() {
        Script { hardware: false, .. } if path == path::HARDWARE => status::NO_HARDWARE,
        script => script.init_status,
    }
}

unsafe extern "C" fn submit(job: *mut RawJob) -> u32 {
    let script = script();
    // SAFETY: the driver promises that the structure is set up and not used in the meantime.
    let raw = unsafe { &mut *job };
    SUBMITTED.set((raw.flags, raw.numa_id));
    assert!(!raw.input.is_null() && !raw.output.is_null());
    assert!(raw.input_bytes > 0 && raw.output_bytes > 0, "QPL takes nothing empty");
    let by_processor = raw.path == path::SOFTWARE || (raw.path == path::AUTO && script.falls_back);
    if script.busy_submissions > 0 && !by_processor {
        set(Script { busy_submissions: script.busy_submissions - 1, ..script });
        return status::QUEUES_BUSY;
    }
    // SAFETY: the state is within the allocation, as `init` laid it out.
    unsafe {
        *raw.state[4].cast::<u32>() = script.checks;
        *raw.state[4].cast::<u32>().add(1) = by_processor.into();
    }
    if by_processor {
        raw.first_index_min_value = u32::MAX;
        return work(raw);
    }
    if script.looks_like_software {
        raw.first_index_min_value = u32::MAX;
    }
    script.submit_status
}

unsafe extern "C" fn check(job: *mut RawJob) -> u32 {
    // SAFETY: as in `submit`.
    let raw = unsafe { &mut *job };
    let left = raw.state[4].cast::<u32>();
    // SAFETY: as in `submit`.
    unsafe {
        if *left.add(1) == 1 {
            return status::OK;
        }
        if *left > 0 {
            *left -= 1;
            return status::BEING_PROCESSED;
        }
    }
    if raw.operation == operation::DECOMPRESS {
        raw.first_index_min_value = u32::MAX;
        raw.sum_value = 0;
    }
    work(raw)
}

unsafe extern "C" fn finish(_job: *mut RawJob) -> u32 {
    status::OK
}

/// Runs the job that the structure describes.
fn work(raw: &mut RawJob) -> u32 {
    // SAFETY: the driver promises to `submit` that the buffers are valid until this returns anything but "being
    // processed".
    let (input, output) = unsafe {
        (
            slice::from_raw_parts(raw.input, raw.input_bytes as usize),
            slice::from_raw_parts_mut(raw.output, raw.output_bytes as usize),
        )
    };
    let result = match raw.operation {
        operation::COMPRESS => Ok(stored(input)),
        operation::DECOMPRESS => inflate(input, 1 << 30).map(|read| read.bytes).ok_or(201),
        _ => {
            raw.crc64 = checksum(raw.crc64_polynomial, input);
            Ok(Vec::new())
        }
    };
    let status = match result {
        Ok(bytes) => match output.get_mut(..bytes.len()) {
            Some(space) => {
                space.copy_from_slice(&bytes);
                raw.written_bytes = bytes.len() as u32;
                raw.read_bytes = raw.input_bytes;
                status::OK
            }
            None => status::MORE_OUTPUT_NEEDED,
        },
        Err(code) => code,
    };
    let script = script();
    raw.written_bytes = script.written_bytes.unwrap_or(raw.written_bytes);
    script.last_status.unwrap_or(status)
}

/// Returns a deflate stream without compression.
fn stored(input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(input.len() + input.len() / 1_000 + 8);
    let mut blocks = input.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let bytes = block.len() as u16;
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(bytes.to_le_bytes());
        stream.extend((!bytes).to_le_bytes());
        stream.extend(block);
    }
    stream
}

/// Returns the reflected checksum, computed bit by bit. The polynomial is at the top of 64 bits.
fn checksum(polynomial: u64, input: &[u8]) -> u64 {
    let reflected = polynomial.reverse_bits();
    let short = polynomial.trailing_zeros() >= 32;
    let ones = if short { u64::from(u32::MAX) } else { u64::MAX };
    let fold = |crc: u64, byte: &u8| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { reflected } else { 0 }
        })
    };
    input.iter().fold(ones, fold) ^ ones
}

/// The size of the structure and of a little state (bytes).
const JOB_BYTES: u32 = 8 << 10;
