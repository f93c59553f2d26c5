//! What C passes, as types of Rust. All unsafe blocks of the library are here. They rest on what the header asks of a
//! caller: a pointer is null, or valid and not changed by others for the duration of the call.

use std::ffi::{CStr, c_char};
use std::slice;

/// Returns the elements at a pointer, or none if it is null. There may be zero elements at any pointer.
pub(crate) fn elements<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: the caller of the library passes the first of `count` elements, which stay as they are until the call
    // returns. No result that borrows them leaves the call.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, count) })
}

/// Returns the bytes at a pointer, or none if it is null and there should be some.
pub(crate) fn bytes<'a>(first: *const c_char, length: usize) -> Option<&'a [u8]> {
    elements(first.cast(), length)
}

/// Returns a text that ends in NUL, or none if it is null or not UTF-8.
pub(crate) fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller of the library passes a text that ends in NUL and stays until the call returns.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?.to_str().ok()
}

/// Returns what the library has made and the caller passes back, or none if it is null.
pub(crate) fn reference<'a, T>(made: *mut T) -> Option<&'a mut T> {
    // SAFETY: the pointer comes from `Box::into_raw`, was not closed, and one thread uses it at a time.
    unsafe { made.as_mut() }
}

/// Takes back what the library has made.
pub(crate) fn taken<T>(made: *mut T) -> Option<Box<T>> {
    // SAFETY: the pointer comes from `Box::into_raw`, and the caller does not use it again.
    (!made.is_null()).then(|| unsafe { Box::from_raw(made) })
}

/// Writes a result for which the caller has passed a place.
pub(crate) fn give<T: Copy>(place: *mut T, result: T) {
    if !place.is_null() {
        // SAFETY: the caller of the library passes null or the place of a variable of this type.
        unsafe { place.write(result) };
    }
}
