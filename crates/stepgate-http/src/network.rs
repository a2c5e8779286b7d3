//! The part of the network that a client comes from, as limits count it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Leading bits of an IPv6 address that one site has: it may use all addresses below them.
const IPV6_BITS: u32 = 64;

/// One IPv4 address, or the first half of an IPv6 address (`/64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl Network {
    /// A socket that listens on `[::]` gives IPv4 clients mapped addresses, which have equal first halves.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let mask = u128::MAX << (u128::BITS - IPV6_BITS);
                Self(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/{IPV6_BITS}"),
        }
    }
}

#[cfg(test)]
mod tests;
