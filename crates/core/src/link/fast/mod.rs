//! Networks of links, and the fast implementation of the most common link.
//!
//! The specification is [`GeneralLink`](super::general_link::GeneralLink): a network with
//! [`LinkForm::Plain`] has no other links and processes each departure by itself. By default, links
//! that qualify are [`FastLink`](fast_link::FastLink)s, which the network also relays, moves in
//! batches, and looks ahead on. The results are the same to the bit: a property test in `network`
//! plays random networks in both forms.

mod fast_link;
mod link_impl;
mod network;

pub(super) use link_impl::LinkImpl;
pub use network::{
    Delivery, Exit, LinkForm, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId,
    Step,
};
