//! The peers by name.

use core::fmt;
use std::path::Path;

use crate::call::{Call, Parts};
use crate::quic::{self, Controller};
use crate::{pion, rtc};

/// A controller of another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Google congestion control as pion has it.
    PionGcc,
    /// A QUIC connection of quinn.
    Quinn(Controller),
    /// Google congestion control as str0m has it.
    Str0mGcc,
}

impl Peer {
    /// All there are, in the order of tables.
    pub const ALL: [Self; 5] = [
        Self::PionGcc,
        Self::Str0mGcc,
        Self::Quinn(Controller::NewReno),
        Self::Quinn(Controller::Cubic),
        Self::Quinn(Controller::Bbr),
    ];

    /// As it is called on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::PionGcc => "pion-gcc",
            Self::Quinn(Controller::Bbr) => "quinn-bbr",
            Self::Quinn(Controller::Cubic) => "quinn-cubic",
            Self::Quinn(Controller::NewReno) => "quinn-newreno",
            Self::Str0mGcc => "str0m-gcc",
        }
    }

    /// The peer called `name`.
    ///
    /// # Errors
    /// When there is none; the message lists those there are.
    pub fn named(name: &str) -> Result<Self, UnknownPeer> {
        let mut peers = Self::ALL.into_iter();
        peers
            .find(|peer| peer.name() == name)
            .ok_or_else(|| UnknownPeer(name.to_owned()))
    }

    /// What it sends: as much as it may, or what an encoder makes.
    pub fn source(self) -> &'static str {
        match self {
            Self::PionGcc | Self::Str0mGcc => "video",
            Self::Quinn(_) => "greedy",
        }
    }

    /// Whether it answers marks of the network.
    pub fn knows_ecn(self) -> bool {
        matches!(self, Self::Quinn(_))
    }

    /// The project that it is from, with the version. `pion` is the program of `peers/pion`, which
    /// only that peer needs.
    ///
    /// # Errors
    /// When that program is needed and does not answer.
    pub fn library(self, pion: Option<&Path>) -> Result<String, CastError> {
        let package = match self {
            Self::PionGcc => return Ok(pion::version(program(pion)?)?),
            Self::Quinn(_) => "quinn-proto",
            Self::Str0mGcc => "str0m",
        };
        Ok(format!("{package} {}", locked(package)))
    }

    /// Both ends of a flow.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn parts(self, call: &Call, pion: Option<&Path>) -> Result<Parts, CastError> {
        Ok(match self {
            Self::PionGcc => pion::parts(call, program(pion)?)?,
            Self::Quinn(controller) => quic::parts(call, controller)?,
            Self::Str0mGcc => rtc::parts(call)?,
        })
    }
}

fn program(pion: Option<&Path>) -> Result<&Path, CastError> {
    pion.ok_or(CastError::NoPion)
}

/// The version of a package that this program is built with.
fn locked(package: &str) -> &'static str {
    let entry = format!("name = \"{package}\"\nversion = \"");
    let after = LOCK.split_once(&entry).map(|(_, after)| after);
    after
        .and_then(|after| after.split('"').next())
        .unwrap_or("of unknown version")
}

/// There is no such peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPeer(String);

impl fmt::Display for UnknownPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Peer::ALL.map(Peer::name).join(", ");
        write!(f, "there is no peer {:?}; there are {names}", self.0)
    }
}

impl core::error::Error for UnknownPeer {}

/// Reason why a peer cannot play a flow.
#[derive(Debug)]
pub enum CastError {
    /// No program of pion is given.
    NoPion,
    /// It does not do what it should.
    Pion(pion::PionError),
    /// str0m fails.
    Rtc(rtc::SetupError),
    /// quinn fails.
    Quic(quic::TlsError),
}

impl From<pion::PionError> for CastError {
    fn from(error: pion::PionError) -> Self {
        Self::Pion(error)
    }
}

impl From<quic::TlsError> for CastError {
    fn from(error: quic::TlsError) -> Self {
        Self::Quic(error)
    }
}

impl From<rtc::SetupError> for CastError {
    fn from(error: rtc::SetupError) -> Self {
        Self::Rtc(error)
    }
}

impl fmt::Display for CastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPion => f.write_str(
                "pion runs in a program of its own: build peers/pion with Go and name it with --pion",
            ),
            Self::Pion(error) => write!(f, "{error}"),
            Self::Quic(error) => write!(f, "{error}"),
            Self::Rtc(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CastError {}

const LOCK: &str = include_str!("../Cargo.lock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_peers() {
        for peer in Peer::ALL {
            assert_eq!(Peer::named(peer.name()), Ok(peer));
        }
        assert_eq!(
            Peer::named("gcc").unwrap_err().to_string(),
            "there is no peer \"gcc\"; there are pion-gcc, str0m-gcc, quinn-newreno, quinn-cubic, quinn-bbr"
        );
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let library = Peer::Str0mGcc.library(None).unwrap();
        let version = library.strip_prefix("str0m ").unwrap();
        assert!(
            version.starts_with(|c: char| c.is_ascii_digit()),
            "{library}"
        );
    }
}
