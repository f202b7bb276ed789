//! What we believe of the kernel, and rely on. When one of these fails, the code is not wrong,
//! but the world is another.

mod lab;

use std::net::UdpSocket;
use std::time::Duration;

use lab::{Capture, in_lab, set_ecn};
use tidegate_core::control::Ecn;
use tidegate_live::clock::Clock;
use tidegate_live::emulator::Host;
use tidegate_live::netns::{Interface, Namespace};
use tidegate_live::tun::Tun;

const DEVICE: &str = "tgtest";

/// Between the kernel's sending and its being readable there is no delay: both happen in
/// `sendto`. So the first read finds it.
fn read(tun: &Tun) -> Vec<u8> {
    let mut buffer = [0; 4_096];
    loop {
        let length = tun.read(&mut buffer).unwrap().expect("a packet is there");
        // The kernel looks for IPv6 routers on its own account.
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
fn a_read_gives_one_whole_packet_with_its_ecn_bits() {
    in_lab("a_read_gives_one_whole_packet_with_its_ecn_bits", || {
        let (namespace, tun) = device();
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1] {
            send(&namespace, 100, ecn).unwrap();
            let packet = read(&tun);
            assert_eq!((packet.len(), Ecn::from_bits(packet[1])), (128, ecn));
        }
    });
}

#[test]
fn the_mtu_holds_whole_and_more_is_cut_in_fragments() {
    in_lab("the_mtu_holds_whole_and_more_is_cut_in_fragments", || {
        let (namespace, tun) = device();
        send(&namespace, 1_472, Ecn::Ect0).unwrap();
        assert_eq!(read(&tun).len(), 1_500);
        // The kernel cuts at the MTU, and all but the last piece into multiples of 8 bytes.
        send(&namespace, 1_473, Ecn::Ect0).unwrap();
        assert_eq!((read(&tun).len(), read(&tun).len()), (1_500, 21));
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
            // What B would send to A is what A sends, with the addresses swapped, which leaves both
            // checksums as they are.
            send(&namespace, 100, Ecn::Ect0).unwrap();
            let mut packet = read(&tun);
            let (source, destination) = packet[12..20].split_at_mut(4);
            source.swap_with_slice(destination);
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                // The capture is before the kernel looks at the checksum.
                packet[1] = ecn.bits();
                tun.write(&packet).unwrap();
                let returned = clock.now();
                let (at, heard) = capture.next().unwrap();
                assert_eq!(heard, packet);
                let clocks = CLOCKS + capture.drift();
                assert!(at <= returned + clocks, "{at:?} {returned:?}");
            }
            assert!(capture.next().is_none());
        },
    );
}

#[test]
fn what_nobody_reads_is_dropped_and_counted() {
    in_lab("what_nobody_reads_is_dropped_and_counted", || {
        let (namespace, _tun) = device();
        // The queue is 100 long, or 500 where we may not choose.
        for _ in 0..600 {
            // Once it is full the kernel says so to some senders, and not to others.
            let _ = send(&namespace, 10, Ecn::NotEct);
        }
        assert!(namespace.transmit_drops(DEVICE).unwrap() >= 100);
    });
}

#[test]
fn namespaces_do_not_hear_each_other() {
    in_lab("namespaces_do_not_hear_each_other", || {
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

/// How well the kernel's time of day can be put on our clock.
const CLOCKS: Duration = Duration::from_micros(20);
