//! The declarations of the C shim in Rust. `drivers/dpdk/shim.h` says what each function does.

use std::ffi::{c_char, c_int, c_void};

/// Receives a line of DPDK's log, which is not terminated.
pub(super) type Log = extern "C" fn(level: u32, text: *const c_char, bytes: usize);

#[repr(C)]
pub(super) struct Description {
    pub(super) name: [c_char; 64],
    pub(super) driver: [c_char; 64],
    pub(super) queue_pairs_max: u16,
    pub(super) deflate: u8,
    pub(super) window_log2_min: u8,
    pub(super) window_log2_max: u8,
    pub(super) window_log2_step: u8,
    pub(super) chains: u8,
    pub(super) shareable: u8,
    pub(super) dynamic: u8,
}

#[repr(C)]
pub(super) struct Request {
    pub(super) transform: *mut c_void,
    pub(super) input: *const c_void,
    pub(super) output: *mut c_void,
    pub(super) input_bytes: u32,
    pub(super) output_bytes: u32,
    pub(super) slot: u32,
    pub(super) spill_bytes: u32,
    pub(super) spill_ones: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) slot: u32,
    pub(super) status: u32,
    pub(super) consumed: u32,
    pub(super) produced: u32,
}

/// The shim's opaque state of a queue.
#[repr(C)]
pub(super) struct RawQueue {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    pub(super) fn rebate_dpdk_init(argc: c_int, argv: *mut *mut c_char, log: Log) -> c_int;
    pub(super) fn rebate_dpdk_iova_is_va() -> c_int;
    pub(super) fn rebate_dpdk_count() -> u32;
    pub(super) fn rebate_dpdk_describe(device: u32, description: *mut Description) -> c_int;
    pub(super) fn rebate_dpdk_probe(arguments: *const c_char) -> c_int;
    pub(super) fn rebate_dpdk_start(
        device: u32,
        queue_pairs: u16,
        ring: u32,
        transforms: u16,
    ) -> c_int;
    pub(super) fn rebate_dpdk_transform_new(
        device: u32,
        level: c_int,
        dynamic: c_int,
        window_log2: u8,
        transform: *mut *mut c_void,
    ) -> c_int;
    pub(super) fn rebate_dpdk_transform_free(device: u32, transform: *mut c_void);
    pub(super) fn rebate_dpdk_queue_new(
        device: u32,
        pair: u16,
        depth: u32,
        segments: u32,
    ) -> *mut RawQueue;
    pub(super) fn rebate_dpdk_queue_free(queue: *mut RawQueue);
    pub(super) fn rebate_dpdk_enqueue(queue: *mut RawQueue, request: *const Request) -> c_int;
    pub(super) fn rebate_dpdk_dequeue(queue: *mut RawQueue, reports: *mut Report, max: u32) -> u32;
    pub(super) fn rebate_dpdk_allocate(bytes: usize) -> *mut c_void;
    pub(super) fn rebate_dpdk_release(memory: *mut c_void);
}
