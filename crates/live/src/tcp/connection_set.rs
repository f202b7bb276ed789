//! Many connections of one thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;

use tidegate_core::units::Time;

use super::TcpError;
use super::connect::begin;
use super::socket::{TcpOptions, TcpSocket};
use crate::driver::{RunLimits, TICK};
use crate::events::{Events, Ready};

/// Non-blocking connections with the same options, and the listener of those that peers open.
/// Connections have small numbers, which are used again after they are closed.
#[derive(Debug)]
pub struct ConnectionSet {
    conditions: RunLimits,
    options: TcpOptions,
    listener: Option<TcpListener>,
    connections: Vec<Option<TcpSocket>>,
    free: Vec<usize>,
    events: Events,
    ready: Ready,
}

impl ConnectionSet {
    /// A set without connections. Those that peers open to `listener` are accepted.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(
        conditions: RunLimits,
        options: TcpOptions,
        listener: Option<TcpListener>,
    ) -> io::Result<Self> {
        if let Some(listener) = &listener {
            listener.set_nonblocking(true)?;
        }
        let sources = listener.iter().map(TcpListener::as_fd);
        let events = Events::new(sources, conditions.stop.event(), conditions.clock)?;
        Ok(Self {
            conditions,
            options,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            events,
            ready: Ready::default(),
        })
    }

    /// Begins a connection and returns its number. Until it is established, reads and writes find
    /// nothing to do.
    ///
    /// # Errors
    /// The system has no further port or file, or rejects an option.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<usize, TcpError> {
        let stream = begin(peer).map_err(TcpError::System)?;
        self.add(TcpSocket::of_peer(stream, peer, &self.options)?)
    }

    /// Closes a connection.
    pub fn close(&mut self, number: usize) {
        if let Some(connection) = self.connections.get_mut(number)
            && connection.take().is_some()
        {
            self.free.push(number);
        }
    }

    /// Waits until connections are readable or writable, at most until `until` or for a tenth of a
    /// second, after which the caller checks the stop flag. Their numbers replace those in `numbers`,
    /// and accepted ones are among them. A connection is reported again only after a read or a write
    /// had nothing to do.
    ///
    /// # Errors
    /// The listener fails, or an option of an accepted connection is rejected.
    pub fn wait(&mut self, until: Time, numbers: &mut Vec<usize>) -> Result<(), TcpError> {
        let tick = self.conditions.clock.now() + TICK;
        let waited = self.events.wait(until.min(tick), &mut self.ready);
        waited.map_err(TcpError::System)?;
        numbers.clear();
        let listeners = usize::from(self.listener.is_some());
        let mut is_called = false;
        for source in self.ready.sources() {
            match source.checked_sub(listeners) {
                Some(number) => numbers.push(number),
                None => is_called = true,
            }
        }
        if is_called {
            self.accept(numbers)?;
        }
        Ok(())
    }

    /// Reads available data: `None` if there is none, zero at the end of the stream. A closed
    /// connection has none.
    ///
    /// # Errors
    /// The connection failed.
    pub fn read(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.connections.get_mut(number) {
            Some(Some(connection)) => connection.read(buffer),
            _ => Ok(None),
        }
    }

    /// Writes as many bytes as the connection accepts; zero if it is full or closed.
    ///
    /// # Errors
    /// The connection failed.
    pub fn write(&mut self, number: usize, bytes: &[u8]) -> io::Result<usize> {
        match self.connections.get_mut(number) {
            Some(Some(connection)) => connection.write(bytes),
            _ => Ok(0),
        }
    }

    fn accept(&mut self, numbers: &mut Vec<usize>) -> Result<(), TcpError> {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let connection = TcpSocket::of_peer(stream, peer, &self.options)?;
                    let number = self.add(connection)?;
                    numbers.push(number);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(TcpError::System(e)),
            }
        }
        Ok(())
    }

    fn add(&mut self, connection: TcpSocket) -> Result<usize, TcpError> {
        let number = self.free.pop().unwrap_or(self.connections.len());
        let index = number + usize::from(self.listener.is_some());
        let watched = self.events.watch(connection.as_fd(), index);
        watched.map_err(TcpError::System)?;
        match self.connections.get_mut(number) {
            Some(place) => *place = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::driver::StopFlag;

    /// Bytes on each connection.
    const SIZE: usize = 100_000;

    fn conditions() -> RunLimits {
        RunLimits {
            clock: Clock::start(),
            until: None,
            stop: StopFlag::new().unwrap(),
        }
    }

    /// A set that reads and answers everything, and one that sends 100 kB over each of 40 connections.
    #[test]
    fn connections_carry_their_own_data() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let options = TcpOptions::default;
        let mut server = ConnectionSet::new(conditions(), options(), Some(listener)).unwrap();
        let mut client = ConnectionSet::new(conditions(), options(), None).unwrap();
        let (mut numbers, mut buffer) = (Vec::new(), vec![0; 4_096]);
        let mut left: Vec<(usize, usize)> = Vec::new();
        let mut echoes: Vec<Vec<u8>> = Vec::new();
        for n in 0..40 {
            assert_eq!(client.connect(peer).unwrap(), n);
            left.push((SIZE, SIZE));
        }
        let soon = |set: &ConnectionSet| set.conditions.clock.now() + Duration::from_millis(2);
        while left.iter().any(|(_, unread)| *unread > 0) {
            server.wait(soon(&server), &mut numbers).unwrap();
            for &number in &numbers {
                if echoes.len() <= number {
                    echoes.resize(number + 1, Vec::new());
                }
                while let Some(count @ 1..) = server.read(number, &mut buffer).unwrap() {
                    echoes[number].extend_from_slice(&buffer[..count]);
                }
                while !echoes[number].is_empty() {
                    let count = server.write(number, &echoes[number]).unwrap();
                    if count == 0 {
                        break;
                    }
                    echoes[number].drain(..count);
                }
            }
            client.wait(soon(&client), &mut numbers).unwrap();
            for &number in &numbers {
                let (unsent, unread) = &mut left[number];
                while *unsent > 0 {
                    let bytes = [number as u8; 1_000];
                    let count = client.write(number, &bytes[..1_000.min(*unsent)]).unwrap();
                    if count == 0 {
                        break;
                    }
                    *unsent -= count;
                }
                while let Some(count @ 1..) = client.read(number, &mut buffer).unwrap() {
                    assert!(buffer[..count].iter().all(|byte| *byte == number as u8));
                    *unread -= count;
                }
            }
        }
        // Both ends read the end of the stream, and the number is used again.
        client.close(7);
        client.close(7);
        let closed = std::iter::repeat_with(|| {
            server.wait(soon(&server), &mut numbers).unwrap();
            let mut ended = numbers.iter().copied();
            ended.find(|number| server.read(*number, &mut buffer).unwrap() == Some(0))
        });
        let ended = closed.flatten().next().unwrap();
        server.close(ended);
        assert_eq!(client.connect(peer).unwrap(), 7);
        assert_eq!(server.write(ended, b"late").unwrap(), 0);
    }
}
