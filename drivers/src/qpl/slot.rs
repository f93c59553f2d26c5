//! One job structure of the library. It is allocated and set up once and used for one job after another. A slot does
//! not own the buffers of its job. The submitter keeps the buffers until the slot says that the job is over.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use device::DeviceError;

use super::abi::{RawJob, path, status};
use super::library::Api;
use super::outcome::{Report, init_problem};

/// A job as a request to the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) operation: u32,
    pub(super) flags: u32,
    pub(super) level: u32,
    pub(super) crc64_polynomial: u64,
    pub(super) input: *const u8,
    pub(super) input_bytes: u32,
    pub(super) output: *mut u8,
    pub(super) output_bytes: u32,
}

/// A job structure with the library's state behind it.
pub(super) struct Slot {
    memory: NonNull<u8>,
    layout: Layout,
    api: Arc<Api>,
    path: u32,
    numa_id: i32,
}

impl Slot {
    /// Makes a structure for jobs on `path`.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`]: the path cannot be used, or this driver does not know the library's
    /// structures.
    pub(super) fn new(api: &Arc<Api>, path: u32, numa_id: i32) -> Result<Self, DeviceError> {
        let bytes = job_bytes(api, path)?;
        let layout = Layout::from_size_align(bytes + SPARE_BYTES, ALIGNMENT_BYTES)
            .expect("a bounded size, and a power of two as alignment");
        // SAFETY: the layout has a size above zero (`job_bytes`).
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        let mut slot = Self { memory, layout, api: Arc::clone(api), path, numa_id };
        match slot.initialise() {
            status::OK => {}
            code => return Err(DeviceError::Misconfigured(init_problem(code))),
        }
        if slot.is_laid_out_as_known() { Ok(slot) } else { Err(layout_unknown(&api.version)) }
    }

    /// Initialises the structure again, without any trace of an earlier job, and returns whether it can be
    /// used. QPL 1.6.0 never clears its marks of a refused second descriptor and of a page fault
    /// (qpl_hw_check_job.cpp), which would break a later job. A page fault that the library's only retry
    /// overcame is not reported, so its mark stays. The next fault then fails its job, which renews the
    /// structure.
    pub(super) fn renew(&mut self) -> bool {
        self.finish();
        self.initialise() == status::OK && self.is_laid_out_as_known()
    }

    /// Submits a job to the library and returns the status. On the hardware path, OK means that the job is in flight.
    ///
    /// # Safety
    /// Input and output are valid for their sizes, the output exclusively, until the job is over. A job is over when
    /// this call fails, or when this call or a later [`Slot::check`] returns anything but "being processed". No job
    /// is in flight in this slot.
    pub(super) unsafe fn submit(&mut self, request: &Request) -> u32 {
        // SAFETY: `memory` holds an initialised job structure, and nothing else uses it between two calls.
        let raw = unsafe { self.memory.cast::<RawJob>().as_mut() };
        raw.input = request.input.cast_mut();
        raw.input_bytes = request.input_bytes;
        raw.read_bytes = 0;
        raw.output = request.output;
        raw.output_bytes = request.output_bytes;
        raw.written_bytes = 0;
        raw.operation = request.operation;
        raw.flags = request.flags;
        raw.level = request.level;
        raw.crc = 0;
        raw.crc64 = 0;
        raw.crc64_polynomial = request.crc64_polynomial;
        raw.first_index_min_value = MARK;
        raw.sum_value = MARK;
        raw.numa_id = self.numa_id;
        // SAFETY: this is an initialised job structure, and the caller promises valid buffers. The library reads the
        // input and writes only within the stated output.
        unsafe { (self.api.submit)(self.memory.as_ptr().cast()) }
    }

    /// Returns a spare byte of the slot, for results that are not used.
    pub(super) fn spare(&mut self) -> *mut u8 {
        // SAFETY: the allocation ends with `SPARE_BYTES` that the library does not know of.
        unsafe { self.memory.as_ptr().add(self.layout.size() - SPARE_BYTES) }
    }

    /// Returns the status of the job in flight. If the job has several steps, starts its next step on the device.
    pub(super) fn check(&mut self) -> u32 {
        // SAFETY: this is an initialised job structure. The buffers live as long as `submit` requires.
        unsafe { (self.api.check)(self.memory.as_ptr().cast()) }
    }

    /// Returns the status with the sizes that the library reports.
    pub(super) fn report(&self, status: u32) -> Report {
        let raw = self.raw();
        Report { status, read_bytes: raw.read_bytes, written_bytes: raw.written_bytes }
    }

    /// Returns the checksum of a finished checksum job.
    pub(super) fn crc64(&self) -> u64 {
        self.raw().crc64
    }

    /// Returns whether the processor ran the job. This is for counts only, because the library has no function that
    /// tells it. On the automatic path, the values that QPL 1.6.0 leaves behind show it (job_execution_api.cpp,
    /// qpl_hw_check_job.cpp). Its software path sets the first index to the largest value and does not touch the sum.
    /// The device's compression touches neither of them, and its decompression touches both.
    pub(super) fn ran_in_software(&self) -> bool {
        match self.path {
            path::SOFTWARE => true,
            path::HARDWARE => false,
            _ => {
                let raw = self.raw();
                raw.first_index_min_value == u32::MAX && raw.sum_value == MARK
            }
        }
    }

    fn raw(&self) -> &RawJob {
        // SAFETY: `memory` holds an initialised job structure. Only the library's calls change it, and they need
        // `&mut self`. A device at work writes behind it, into the library's state.
        unsafe { self.memory.cast::<RawJob>().as_ref() }
    }

    fn initialise(&mut self) -> u32 {
        // SAFETY: `memory` is exclusive and has the size that the library requires on this path.
        unsafe { (self.api.init)(self.path, self.memory.as_ptr().cast()) }
    }

    fn finish(&mut self) {
        // SAFETY: this is an initialised job structure. The result is ignored, because nothing can be done about a
        // failure.
        unsafe { (self.api.finish)(self.memory.as_ptr().cast()) };
    }

    /// Returns whether the structure, read with this driver's layout, is as `qpl_init_job` leaves it. It must have
    /// the requested path, and pointers to the state behind the structure, in order and within the allocation.
    fn is_laid_out_as_known(&self) -> bool {
        let raw = self.raw();
        let begin = self.memory.as_ptr().addr();
        let within = begin + size_of::<RawJob>()..=begin + self.layout.size() - SPARE_BYTES;
        raw.path == self.path
            && raw.state.is_sorted_by_key(|part| part.addr())
            && raw.state.iter().all(|part| within.contains(&part.addr()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.finish();
        // SAFETY: the memory was allocated in `new` with this layout. No job is in flight, because a queue leaks the
        // slots whose jobs may be in flight.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Returns the size of a job structure with the library's state, if the size is plausible.
fn job_bytes(api: &Api, path: u32) -> Result<usize, DeviceError> {
    let mut bytes = 0;
    // SAFETY: the second argument is where the library writes one u32 (job.h).
    let code = unsafe { (api.job_size)(path, ptr::from_mut(&mut bytes)) };
    match code {
        status::OK if (JOB_BYTES_MIN..=JOB_BYTES_MAX).contains(&bytes) => Ok(bytes as usize),
        status::OK => Err(layout_unknown(&api.version)),
        code => Err(DeviceError::Misconfigured(init_problem(code))),
    }
}

fn layout_unknown(version: &str) -> DeviceError {
    DeviceError::Misconfigured(format!(
        "QPL {version} lays its jobs out otherwise than versions 1.0 to 1.6; use one of these"
    ))
}

/// A value without meaning to the library. It shows which fields the library changed.
const MARK: u32 = 0x5EBA_7E01;

/// The size of a cache line, which is also the alignment that the device requires of its completion record.
const ALIGNMENT_BYTES: usize = 64;

/// The size of the spare space. It is a cache line that is used for nothing else.
const SPARE_BYTES: usize = 64;

/// The plausible sizes of a job structure (bytes). QPL 1.6.0 needs 189 kB (hardware) to 831 kB (automatic).
const JOB_BYTES_MIN: u32 = 4 << 10;
const JOB_BYTES_MAX: u32 = 16 << 20;
