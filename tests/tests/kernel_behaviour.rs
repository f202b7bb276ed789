//! Kernel behaviour on which the emulator and the tests rely. A failure means that the kernel
//! behaves differently, rather than an error in the code.

mod lab;

use std::net::UdpSocket;
use std::time::Duration;

use lab::namespaces::in_lab;
use lab::{Capture, set_ecn};
use tidegate_core::control::Ecn;
use tidegate_core::endpoint::Transmit;
use tidegate_live::clock::Clock;
use tidegate_live::emulator::Host;
use tidegate_live::netns::{Interface, Namespace};
use tidegate_live::tun::Tun;
use tidegate_live::udp::Socket;

const DEVICE: &str = "tgtest";

/// Reads an IPv4 packet. The kernel makes a packet readable within `sendto`, so the first read
/// finds it.
fn read(tun: &Tun) -> Vec<u8> {
    let mut buffer = [0; 4_096];
    loop {
        let length = tun
            .read(&mut buffer)
            .unwrap()
            .expect("a packet is readable");
        // The kernel sends IPv6 router solicitations by itself.
        if buffer[0] >> 4 == 4 {
            return buffer[..length].to_vec();
        }
    }
}

fn device() -> (Namespace, Tun) {
    let namespace = Namespace::new().unwrap();
    let tun = Tun::open(&namespace, DEVICE).unwrap();
    let interface = Interface {
        address: Host::A.address(),
        prefix: 30,
        mtu: 1_500,
        queue: 100,
    };
    namespace.configure(DEVICE, interface).unwrap();
    (namespace, tun)
}

fn send(namespace: &Namespace, payload: usize, ecn: Ecn) -> std::io::Result<usize> {
    let send = || {
        let socket = UdpSocket::bind((Host::A.address(), 5_000)).unwrap();
        set_ecn(&socket, ecn);
        socket.send_to(&vec![7; payload], (Host::B.address(), 5_001))
    };
    namespace.within(send).unwrap()
}

#[test]
fn a_read_returns_one_complete_packet_with_its_ecn_bits() {
    in_lab(
        "a_read_returns_one_complete_packet_with_its_ecn_bits",
        || {
            let (namespace, tun) = device();
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1] {
                send(&namespace, 100, ecn).unwrap();
                let packet = read(&tun);
                assert_eq!((packet.len(), Ecn::from_bits(packet[1])), (128, ecn));
            }
        },
    );
}

#[test]
fn packets_above_the_mtu_are_fragmented() {
    in_lab("packets_above_the_mtu_are_fragmented", || {
        let (namespace, tun) = device();
        send(&namespace, 1_472, Ecn::Ect0).unwrap();
        assert_eq!(read(&tun).len(), 1_500);
        // The kernel fragments at the MTU. All fragments but the last are multiples of 8 bytes.
        send(&namespace, 1_473, Ecn::Ect0).unwrap();
        assert_eq!((read(&tun).len(), read(&tun).len()), (1_500, 21));
    });
}

/// "Fragmentation needed" (RFC 1191) about an IPv4 packet, from its destination.
fn fragmentation_needed(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&packet[..28]);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let mut header = packet[..20].to_vec();
    header[2..4].copy_from_slice(&(20 + icmp.len() as u16).to_be_bytes());
    header[9] = 1;
    header[10..12].fill(0);
    let (from, to) = (packet[16..20].to_vec(), packet[12..16].to_vec());
    header[12..20].copy_from_slice(&[from, to].concat());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    [header, icmp].concat()
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// The kernel reports a smaller MTU as an error of the next datagram, whatever its size.
#[test]
fn a_report_of_a_smaller_mtu_costs_no_datagram() {
    in_lab("a_report_of_a_smaller_mtu_costs_no_datagram", || {
        let (namespace, tun) = device();
        let connect = || {
            let socket = UdpSocket::bind((Host::A.address(), 5_000)).unwrap();
            Socket::connected(socket, (Host::B.address(), 5_001).into()).unwrap()
        };
        let mut socket = namespace.within(connect).unwrap();
        let mut send = |payload| socket.send(&vec![7; payload], Transmit::default());
        send(100).unwrap();
        tun.write(&fragmentation_needed(&read(&tun), 600)).unwrap();
        send(100).unwrap();
        assert_eq!(read(&tun).len(), 128);
        send(700).unwrap();
        assert_eq!((read(&tun).len(), read(&tun).len()), (596, 152));
        assert!(send(65_508).is_err(), "larger than any datagram");
    });
}

#[test]
fn a_write_arrives_once_unchanged_and_before_it_returns() {
    in_lab(
        "a_write_arrives_once_unchanged_and_before_it_returns",
        || {
            let (namespace, tun) = device();
            let clock = Clock::start();
            let capture = namespace.within(|| Capture::start(DEVICE, clock)).unwrap();
            // A packet from B to A, made from A's packet by swapping the addresses, which keeps
            // both checksums.
            send(&namespace, 100, Ecn::Ect0).unwrap();
            let mut packet = read(&tun);
            let (source, destination) = packet[12..20].split_at_mut(4);
            source.swap_with_slice(destination);
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                // The capture precedes the kernel's check of the checksum.
                packet[1] = ecn.bits();
                tun.write(&packet).unwrap();
                let returned = clock.now();
                let (at, captured) = capture.next().unwrap();
                assert_eq!(captured, packet);
                let clocks = CLOCKS + capture.drift();
                assert!(at <= returned + clocks, "{at:?} {returned:?}");
            }
            assert!(capture.next().is_none());
        },
    );
}

#[test]
fn unread_packets_are_dropped_and_counted() {
    in_lab("unread_packets_are_dropped_and_counted", || {
        let (namespace, _tun) = device();
        // The queue length is 100 packets, or 500 where it cannot be set.
        for _ in 0..600 {
            // With a full queue the kernel reports an error to some senders only.
            let _ = send(&namespace, 10, Ecn::NotEct);
        }
        assert!(namespace.transmit_drops(DEVICE).unwrap() >= 100);
    });
}

#[test]
fn namespaces_are_isolated() {
    in_lab("namespaces_are_isolated", || {
        let (one, tun) = device();
        let (_other, other_tun) = device();
        send(&one, 10, Ecn::NotEct).unwrap();
        assert_eq!(read(&tun).len(), 38);
        let mut buffer = [0; 2_048];
        while let Some(length) = other_tun.read(&mut buffer).unwrap() {
            assert_ne!((buffer[0] >> 4, length), (4, 38));
        }
    });
}

/// Accuracy of the conversion between the kernel's real-time clock and the monotonic clock.
const CLOCKS: Duration = Duration::from_micros(20);
