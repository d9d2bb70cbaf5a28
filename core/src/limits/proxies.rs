//! Whose word for a client's address counts: networks of proxies, and the right-most hop that is
//! none of them. What a client writes into the header itself stands farther left and says nothing.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks of trusted proxies; none by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// From networks (`10.0.0.0/8`) and addresses; `None` names what is neither.
    ///
    /// # Errors
    /// The text that is no network.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let parse = |text: &'a str| {
            let network = text.parse::<IpNet>().ok();
            network
                .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
                .ok_or(text)
        };
        let networks: Result<Vec<IpNet>, _> = texts.into_iter().map(parse).collect();
        networks.map(Self)
    }

    /// Whether this peer is one of them.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client behind `peer`, by the values of `X-Forwarded-For` in their order.
    pub fn client<'a>(
        &self,
        peer: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut client = peer;
        for hop in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            if !self.trusts(client) {
                break;
            }
            match address(hop.trim()) {
                Some(address) => client = address,
                // Whatever it is, the hop before it is the last that is known.
                None => break,
            }
        }
        client
    }
}

/// An address, perhaps with brackets and port.
fn address(text: &str) -> Option<IpAddr> {
    let parsed = text.parse::<IpAddr>().ok();
    parsed
        .or_else(|| text.parse().ok().map(|at: std::net::SocketAddr| at.ip()))
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
        .map(|address| address.to_canonical())
}
