//! Linux drivers: clock, UDP, TUN link emulator in network namespaces.
