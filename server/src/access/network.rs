//! Networks of addresses in the form `ADDRESS/BITS`.

use std::net::IpAddr;
use std::str::FromStr;

/// All addresses whose first bits are those of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns whether the address is in the network. An IPv4 address that is written as IPv6 counts as IPv4.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                let prefix = |bits: u32| bits.checked_shr(shift).unwrap_or(0);
                prefix(network.to_bits()) == prefix(address.to_bits())
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                let prefix = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
                prefix(network.to_bits()) == prefix(address.to_bits())
            }
            _ => false,
        }
    }

    /// Returns the number of bits that an address must share. A larger number is a narrower network.
    pub(super) const fn bits(&self) -> u8 {
        self.bits
    }
}

/// The bits in front of an IPv4 address that is written as IPv6 (`::ffff:0:0/96`).
const MAPPED_BITS: u8 = 96;

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not ADDRESS/BITS, such as 10.0.0.0/8 or ::1/128");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if bits > bits_max {
            return Err(format!("{text:?} has {bits} bits; at most {bits_max}"));
        }
        // Clients with such addresses count as IPv4, so that as it stands the network would contain nobody.
        match (address.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
            (address @ IpAddr::V4(_), Some(bits)) if bits_max > 32 => Ok(Self { address, bits }),
            _ => Ok(Self { address, bits }),
        }
    }
}
