//! The memory that the engine reads and writes by address: the interface that a driver must
//! provide, and a simple page of buffers that can be lent to other threads. The page allocates only
//! in [`DataPage::map`].

use crate::command::Address;

/// Memory that is accessed by address. A driver provides it.
pub trait Memory {
    /// Returns `length` bytes at `from` for reading, and all bytes that are mapped from `to` on for
    /// writing. Buffers do not overlap: if `from` and `to` are in the same buffer, the result is
    /// [`Unmapped::To`].
    fn pair(
        &mut self,
        from: Address,
        length: usize,
        to: Address,
    ) -> Result<(&[u8], &mut [u8]), Unmapped>;

    /// Returns the number of memory operations that have not completed. An engine drains until it
    /// is zero (`MemReqInFlight`).
    fn in_flight(&self) -> usize {
        0
    }
}

/// The address that is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// The address from which bytes are read.
    From,
    /// The address to which bytes are written.
    To,
}

/// Buffers with an address each. A lent buffer is not mapped until it is put back.
#[derive(Debug, Default)]
pub struct DataPage {
    buffers: Vec<Option<Box<[u8]>>>,
}

impl DataPage {
    /// Maps a buffer of `bytes` zero bytes.
    ///
    /// # Panics
    /// If there are more than 2^28 - 1 buffers, or if `bytes` is 4 GiB or more.
    pub fn map(&mut self, bytes: usize) -> Address {
        assert!(u32::try_from(bytes).is_ok(), "a buffer of {bytes} bytes, above 4 GiB");
        self.buffers.push(Some(vec![0; bytes].into_boxed_slice()));
        assert!(self.buffers.len() < 1 << 28, "too many buffers");
        Address::new((self.buffers.len() as u64) << OFFSET_BITS).expect("a multiple of 2^32")
    }

    /// Removes the buffer from the page for another thread. Its address is then not mapped.
    pub fn lend(&mut self, at: Address) -> Option<Box<[u8]>> {
        self.buffers.get_mut(index(at)?)?.take()
    }

    /// Puts back a lent buffer, or another buffer in its place. Returns false if no buffer is lent
    /// at this address.
    pub fn put_back(&mut self, at: Address, buffer: Box<[u8]>) -> bool {
        let place = index(at).and_then(|index| self.buffers.get_mut(index));
        let Some(place) = place.filter(|place| place.is_none()) else { return false };
        *place = Some(buffer);
        true
    }

    /// Returns the mapped bytes from this address on.
    pub fn bytes(&self, at: Address) -> Option<&[u8]> {
        self.buffers.get(index(at)?)?.as_ref()?.get(offset(at)..)
    }

    /// Returns the mapped bytes from this address on, for writing.
    pub fn bytes_mut(&mut self, at: Address) -> Option<&mut [u8]> {
        self.buffers.get_mut(index(at)?)?.as_mut()?.get_mut(offset(at)..)
    }
}

impl Memory for DataPage {
    fn pair(
        &mut self,
        from: Address,
        length: usize,
        to: Address,
    ) -> Result<(&[u8], &mut [u8]), Unmapped> {
        let source = index(from).filter(|at| *at < self.buffers.len()).ok_or(Unmapped::From)?;
        let target = index(to).ok_or(Unmapped::To)?;
        let Ok([source, target]) = self.buffers.get_disjoint_mut([source, target]) else {
            return Err(Unmapped::To);
        };
        let source = source.as_deref().and_then(|bytes| bytes.get(offset(from)..));
        let source = source.and_then(|bytes| bytes.get(..length)).ok_or(Unmapped::From)?;
        let target = target.as_deref_mut().and_then(|bytes| bytes.get_mut(offset(to)..));
        Ok((source, target.ok_or(Unmapped::To)?))
    }
}

fn index(at: Address) -> Option<usize> {
    usize::try_from(at.get() >> OFFSET_BITS).ok()?.checked_sub(1)
}

fn offset(at: Address) -> usize {
    (at.get() & ((1 << OFFSET_BITS) - 1)) as usize
}

/// The number of bits of an offset. An address consists of a buffer's number, counted from 1, and
/// an offset.
const OFFSET_BITS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmapped_buffer_is_a_fault() {
        let mut page = DataPage::default();
        let (first, second) = (page.map(32), page.map(32));
        let third = Address::new(second.get() + (1 << OFFSET_BITS)).expect("aligned");
        let pair = |page: &mut DataPage, from, length, to| page.pair(from, length, to).map(|_| ());
        assert_eq!(pair(&mut page, first, 32, second), Ok(()));
        assert_eq!(pair(&mut page, first, 33, second), Err(Unmapped::From));
        assert_eq!(pair(&mut page, first, 1, first), Err(Unmapped::To));
        assert_eq!(pair(&mut page, third, 0, first), Err(Unmapped::From));
        assert_eq!(pair(&mut page, first, 0, third), Err(Unmapped::To));
        assert_eq!(pair(&mut page, first, 0, Address::default()), Err(Unmapped::To));
        let lent = page.lend(second).expect("mapped");
        assert_eq!(pair(&mut page, first, 1, second), Err(Unmapped::To));
        assert!(page.lend(second).is_none());
        assert!(page.put_back(second, lent));
        assert!(!page.put_back(second, Box::default()), "not lent");
        let inside = Address::new(second.get() + 16).expect("aligned");
        assert_eq!(page.pair(first, 4, inside).expect("mapped").1.len(), 16);
    }
}
