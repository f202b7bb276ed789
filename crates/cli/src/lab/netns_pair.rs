//! The two hosts of a flow, and the endpoint threads on them.

use std::cell::RefCell;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context as _, Result};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{RunLimits, StopFlag, drive};
use tidegate_live::emulator::Host;
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_live::netns::{Namespace, Worker};
use tidegate_live::realtime;
use tidegate_live::tcp_sysctls::listen;
use tidegate_live::udp::Socket;
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult, Player};

use super::endpoint_load::EndpointLoad;
use super::kernel::KernelTcp;
use super::records::Records;

pub(super) type LabPlayer = Player<EncoderThread>;
pub(super) type TimedEvents = Vec<(Time, Event)>;
pub(super) type Endpoint = Worker<Result<(FlowResult, TimedEvents)>>;

/// Two hosts of a flow.
pub(super) struct NetnsPair<'a> {
    pub(super) namespaces: [&'a Namespace; 2],
    pub(super) hosts: [Host; 2],
    pub(super) instance: &'a FlowInstance,
    pub(super) seed: Seed,
    /// End of the run.
    pub(super) until: Time,
    /// Stop flag of the receiver.
    pub(super) stop: &'a StopFlag,
    pub(super) gate: &'a StartGate,
    pub(super) load: &'a EndpointLoad,
}

/// Indices of the two hosts.
pub(super) const SENDER: usize = 0;
pub(super) const RECEIVER: usize = 1;

impl NetnsPair<'_> {
    /// Starts a datagram endpoint, which waits for the gate.
    pub(super) fn drive(
        &self,
        host: usize,
        mut player: LabPlayer,
        stop: &StopFlag,
        records: Records,
    ) -> Result<Endpoint> {
        let side = ["A", "B"][host];
        let mut rng = self
            .seed
            .stream(&format!("party/{}/{side}", self.instance.name));
        let start = Time::ZERO + self.instance.plan.start;
        // Both sockets exist before either end sends: a datagram to an unbound port causes an ICMP
        // error at the sender.
        let (socket, peer) = self.bind(host, PORT)?;
        let load = self.load.clone();
        let job = move |conditions: &RunLimits| {
            let mut sockets = vec![Socket::connected(socket, peer)?];
            let _ = realtime::ask(PRIORITY);
            conditions.sleep_until(start);
            load.thread(|| {
                drive(
                    &mut player,
                    &mut sockets,
                    conditions,
                    &mut rng,
                    &mut &records,
                    |player, _| {
                        records.with(|results, _| player.drain(results));
                        ControlFlow::Continue(())
                    },
                )
            })?;
            records.with(|results, _| player.finish(results));
            if let Player::Video(streamer) = &player
                && let Some(error) = streamer.error()
            {
                return Err(error.clone().into());
            }
            Ok(records.take())
        };
        self.inside(host, stop, job)
    }

    /// Binds a socket of one host, and returns it with the address of its peer at the same port.
    pub(super) fn bind(&self, host: usize, port: u16) -> Result<(UdpSocket, SocketAddr)> {
        let [own, peer] = [host, 1 - host].map(|host| (self.hosts[host].address(), port));
        let socket = self.namespaces[host].within(|| UdpSocket::bind(own))??;
        Ok((socket, peer.into()))
    }

    /// Applies the TCP settings to both hosts and makes one of them listen.
    pub(super) fn listen(&self, host: usize, kernel: &KernelTcp) -> Result<TcpListener> {
        for namespace in self.namespaces {
            kernel.stack.apply(namespace)?;
        }
        let (address, limits) = (self.hosts[host].address(), kernel.limits);
        let listen = || listen(SocketAddrV4::new(address, PORT), limits);
        Ok(self.namespaces[host].within(listen)??)
    }

    /// Address of the listener of a host.
    pub(super) fn listener_of(&self, host: usize) -> SocketAddr {
        (self.hosts[host].address(), PORT).into()
    }

    /// Starts a thread on a host. It waits for the gate and ends when `stop` is set.
    pub(super) fn inside(
        &self,
        host: usize,
        stop: &StopFlag,
        job: impl FnOnce(&RunLimits) -> Result<(FlowResult, TimedEvents)> + Send + 'static,
    ) -> Result<Endpoint> {
        let start = self.gate.queue();
        let (until, stop) = (Some(self.until), stop.clone());
        let job = move || match start.recv() {
            Ok(clock) => job(&RunLimits { clock, until, stop }),
            // The gate was dropped without a start, after another failure.
            Err(_) => Ok(Default::default()),
        };
        let namespace = self.namespaces[host];
        namespace.run(job).context("cannot enter a host of the lab")
    }
}

/// Start gate of all threads. Creating many hosts and setting up their TCP takes seconds on a busy
/// machine, which is not part of the scenario's time.
#[derive(Default)]
pub(super) struct StartGate {
    waiting: RefCell<Vec<Sender<Clock>>>,
}

impl StartGate {
    /// Registers a thread. The receiver yields the clock when the gate opens, or an error if the
    /// gate is dropped unopened.
    pub(super) fn queue(&self) -> Receiver<Clock> {
        let (open, start) = channel();
        self.waiting.borrow_mut().push(open);
        start
    }

    pub(super) fn open(self, clock: Clock) {
        for waiting in self.waiting.into_inner() {
            // The thread may have ended already.
            let _ = waiting.send(clock);
        }
    }
}

/// Port on the lab's hosts, which are isolated from other networks.
const PORT: u16 = 5004;
/// Below the emulator's 40. An endpoint that waits for a processor adds to the round-trip time and sends
/// bursts: RCS then has 13 % less at a loss probability of 0.0001.
const PRIORITY: i32 = 20;
