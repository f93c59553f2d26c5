//! Foreign engines behind the device contract; the one address of unsafe code.
