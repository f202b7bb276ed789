//! The two ends of a transfer over kernel TCP: a `tcp` flow of a scenario.

use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context as _, Result};
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::Conditions;
use tidegate_live::tcp::{TcpOptions, TcpSocket, accept};
use tidegate_sim::cast::Role;
use tidegate_sim::tcp::SourceKind;

use super::kernel::KernelTcp;

/// Sends what the flow has to send, until it stops. When all of it was acknowledged, to a few ms; none
/// if it had no end or did not come to it.
///
/// # Errors
/// The connection failed.
pub(super) fn send(
    role: &Role,
    kernel: &KernelTcp,
    amount: SourceKind,
    peer: SocketAddr,
    conditions: &Conditions,
) -> Result<Option<Time>> {
    let clock = conditions.clock;
    conditions.sleep_until(Time::ZERO + role.plan.start);
    if conditions.stop.is_set() {
        return Ok(None);
    }
    let end = Time::ZERO + role.plan.stop;
    let patience = end.since(clock.now()).max(Duration::from_millis(1));
    let Ok(mut stream) = TcpStream::connect_timeout(&peer, patience) else {
        // As a model would: over a dead path nothing comes about.
        return Ok(None);
    };
    let options = TcpOptions {
        congestion: Some(kernel.congestion.to_owned()),
        // So little is left to send when the flow stops.
        notsent_lowat: Some(Bytes(CHUNK as u64)),
        rto_max: kernel.rto_max,
    };
    let socket = TcpSocket::new(stream.try_clone()?, &options)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut left = match amount {
        SourceKind::Bytes(bytes) => bytes,
        _ => u64::MAX,
    };
    let chunk = vec![0; CHUNK];
    let over = || conditions.stop.is_set() || clock.now() >= end;
    while left > 0 && !over() {
        let part = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        match stream.write(&chunk[..part]) {
            Ok(count) => left -= count as u64,
            Err(e) if waits(&e) => {}
            Err(e) => return Err(e).context("a transfer broke"),
        }
    }
    while left == 0 && !over() {
        let (unsent, unacknowledged) = socket.backlog()?;
        if unsent + unacknowledged == Bytes(0) {
            return Ok(Some(clock.now()));
        }
        std::thread::sleep(GLANCE);
    }
    Ok(None)
}

/// Swallows what one sender sends.
///
/// # Errors
/// The connection failed.
pub(super) fn receive(listener: &TcpListener, conditions: &Conditions) -> Result<()> {
    let end = conditions.until.unwrap_or(Time::FAR);
    let over = || conditions.stop.is_set() || conditions.clock.now() >= end;
    let Some(mut stream) = accept(listener, conditions, over)? else {
        return Ok(());
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 1 << 16];
    while !over() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Err(e) if !waits(&e) => return Err(e).context("a transfer broke"),
            _ => {}
        }
    }
    Ok(())
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Of a write.
const CHUNK: usize = 1 << 16;
/// It looks this often whether what is left was acknowledged.
const GLANCE: Duration = Duration::from_millis(5);
/// It looks this often whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);
