use super::*;

#[test]
fn drops_are_parsed_from_the_transmit_column() {
    let table = "Inter-|   Receive   |  Transmit\n \
                     face |bytes ...\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13\n tg0:1 2 3 4 5 6 7 8 9 10 11 99 13";
    assert_eq!(transmit_drops(table, "tg0"), Some(99));
    assert_eq!(transmit_drops(table, "lo"), Some(12));
    assert_eq!(transmit_drops(table, "tg1"), None);
}

#[test]
fn missing_prerequisites_have_a_hint() {
    let missing = |step, errno| Missing { step, errno }.to_string();
    assert!(missing(Step::OpenTun, libc::ENOENT).contains("modprobe tun"));
    assert!(missing(Step::OpenTun, libc::EACCES).contains("run as root"));
    assert!(missing(Step::MakeNamespace, libc::EPERM).contains("unprivileged_userns_clone"));
    assert!(missing(Step::MakeTun, libc::EPERM).contains("AppArmor"));
}

#[test]
fn errors_name_the_limit() {
    let message = |errno| NetnsError::Create(io::Error::from_raw_os_error(errno)).to_string();
    assert!(message(libc::ENOSPC).contains("user.max_net_namespaces"));
    assert!(message(libc::EMFILE).contains("ulimit -n"));
    assert!(message(libc::EPERM).contains("run as root"));
}

#[test]
fn long_interface_names_are_rejected() {
    assert!(InterfaceRequest::new("fifteen-is-max1", &[]).is_ok());
    assert!(InterfaceRequest::new("sixteen-is-above", &[]).is_err());
}
