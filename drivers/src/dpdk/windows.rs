//! The windows that a device can compress with, and the choice of one of them. This is a pure function.

/// The windows that a device can compress with (log2 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) min: u8,
    pub(super) max: u8,
    step: u8,
}

impl Windows {
    /// Makes the windows from the device's capabilities, limited to the windows of deflate.
    pub(super) fn new(min: u8, max: u8, step: u8) -> Self {
        let max = max.min(DEFLATE_MAX);
        Self { min: min.clamp(WINDOW_MIN, max.max(WINDOW_MIN)), max, step }
    }

    /// Returns the widest window that is at most `asked`. Returns the narrowest window if all are wider. That is
    /// allowed because the input is then smaller than any window.
    pub(super) fn within(self, asked: u8) -> u8 {
        let mut steps = (self.min..=self.max).step_by(self.step.max(1).into());
        let widest = steps.rfind(|window| *window <= asked);
        // A device with one window may state no step. The widest window may lie between two steps.
        if asked >= self.max { self.max } else { widest.unwrap_or(self.min) }
    }
}

/// Deflate's widest window (log2 bytes). zlib makes no raw streams with a window below `WINDOW_MIN`.
const DEFLATE_MAX: u8 = 15;
const WINDOW_MIN: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_widest_that_keeps_the_promise() {
        let all = Windows::new(8, 15, 1);
        for (asked, window) in [(15, 15), (12, 12), (9, 9), (8, 9), (0, 9), (255, 15)] {
            assert_eq!(all.within(asked), window);
        }
        let one = Windows::new(15, 15, 0);
        for (asked, window) in [(15, 15), (12, 15), (255, 15)] {
            assert_eq!(one.within(asked), window);
        }
        let odd = Windows::new(9, 14, 2);
        for (asked, window) in [(15, 14), (14, 14), (13, 13), (12, 11), (10, 9)] {
            assert_eq!(odd.within(asked), window);
        }
    }
}
