//! Server of pages: answers each request with as many bytes as it asks for.

use std::io;

use anyhow::Result;
use tidegate_core::units::Time;
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::ConnectionSet;
use tidegate_sim::traffic::web::Config;

use super::{SIZE, request_payload};

/// Answers the requests of all accepted connections until `end` or until the stop flag is set.
///
/// # Errors
/// The listener failed, or the process has too many open files.
pub(super) fn serve(
    mut set: ConnectionSet,
    config: &Config,
    conditions: &RunLimits,
    end: Time,
) -> Result<()> {
    let mut server = Server {
        answers: Vec::new(),
        request: request_payload(config),
        buffer: vec![0; BUFFER],
    };
    let mut numbers = Vec::new();
    while !conditions.stop.is_set() && conditions.clock.now() < end {
        set.wait(end, &mut numbers)?;
        for &number in &numbers {
            server.serve(&mut set, number);
        }
    }
    Ok(())
}

struct Server {
    /// By the number of the connection.
    answers: Vec<Answer>,
    /// Payload of a request.
    request: usize,
    buffer: Vec<u8>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    /// Beginning of the current request.
    size: [u8; SIZE],
    /// Bytes of it that have arrived.
    received: usize,
    /// Bytes that are not yet sent.
    left: u64,
}

impl Answer {
    /// Adds received bytes. Objects of complete requests are sent one after another.
    fn on_bytes(&mut self, mut bytes: &[u8], request: usize) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(request - self.received));
            for (place, byte) in self.size.iter_mut().skip(self.received).zip(part) {
                *place = *byte;
            }
            self.received += part.len();
            if self.received == request {
                self.received = 0;
                self.left = self.left.saturating_add(u64::from_be_bytes(self.size));
            }
            bytes = rest;
        }
    }
}

impl Server {
    /// Reads requests and writes answers until there is nothing to do. A connection that fails, or
    /// that the browser has closed, is closed.
    fn serve(&mut self, set: &mut ConnectionSet, number: usize) {
        if self.answers.len() <= number {
            self.answers.resize(number + 1, Answer::default());
        }
        if let Ok(true) = self.exchange(set, number) {
            return;
        }
        set.close(number);
        self.answers[number] = Answer::default();
    }

    /// Whether the connection is still open.
    fn exchange(&mut self, set: &mut ConnectionSet, number: usize) -> io::Result<bool> {
        let answer = &mut self.answers[number];
        while let Some(count) = set.read(number, &mut self.buffer)? {
            if count == 0 {
                return Ok(false);
            }
            answer.on_bytes(&self.buffer[..count], self.request);
        }
        while answer.left > 0 {
            let part = (self.buffer.len() as u64).min(answer.left) as usize;
            let count = set.write(number, &self.buffer[..part])?;
            if count == 0 {
                break;
            }
            answer.left -= count as u64;
        }
        Ok(true)
    }
}

/// Size of a read and of a write.
const BUFFER: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_may_arrive_in_any_parts() {
        let mut requests = Vec::new();
        for size in [300_u64, 70_000, 1] {
            let mut request = vec![9; 20];
            request[..SIZE].copy_from_slice(&size.to_be_bytes());
            requests.extend(request);
        }
        for part in [1, 7, 8, 19, 20, 21, 60] {
            let mut answer = Answer::default();
            for bytes in requests.chunks(part) {
                answer.on_bytes(bytes, 20);
            }
            assert_eq!((answer.left, answer.received), (70_301, 0), "{part}");
        }
    }
}
