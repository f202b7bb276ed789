//! Sessions in memory, and files of certificates and keys.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A self-signed certificate for `localhost` and its key, in a temporary folder.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("tidegate-tls-{test}-{}", std::process::id());
        let files = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&files.0).unwrap();
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(files.certificate(), pair.cert.pem()).unwrap();
        fs::write(files.key(), pair.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(files.key(), Permissions::from_mode(0o600)).unwrap();
        files
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    fn identity(&self) -> Identity {
        Identity::read(&self.certificate(), &self.key()).unwrap()
    }

    fn pinned(&self) -> Accepted {
        Accepted::Pinned(vec![self.identity().fingerprint()])
    }

    fn issued(&self) -> Accepted {
        Accepted::IssuedBy(Authorities::File(self.certificate()))
    }

    pub(crate) fn server(&self) -> TlsServer {
        TlsServer::new(&self.identity(), None).unwrap()
    }

    /// A client that knows the certificate.
    pub(crate) fn client(&self) -> TlsClient {
        TlsClient::new(&self.pinned(), None).unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A byte stream in memory that accepts a limited number of bytes per call.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    /// Bytes that the pipe accepts, by call.
    room: Vec<usize>,
}

impl Pipe {
    fn put(&mut self, bytes: &[u8]) -> usize {
        let room = self.room.pop().unwrap_or(0).min(bytes.len());
        self.bytes.extend(&bytes[..room]);
        room
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(self.bytes.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        Ok(count)
    }
}

/// Passes everything that `from` has to send to `to`. Returns the data of the application.
fn deliver(from: &mut TlsSession, to: &mut TlsSession) -> io::Result<Vec<u8>> {
    let mut pipe = Pipe::default();
    from.write(&[], |bytes| {
        pipe.bytes.extend(bytes);
        Ok(bytes.len())
    })?;
    read_all(to, &mut pipe)
}

fn read_all(session: &mut TlsSession, pipe: &mut Pipe) -> io::Result<Vec<u8>> {
    let (mut data, mut buffer) = (Vec::new(), [0; 1_000]);
    while let Some(count) = session.read(pipe, &mut buffer)? {
        if count == 0 {
            break;
        }
        data.extend(&buffer[..count]);
    }
    Ok(data)
}

fn handshake(client: &mut TlsSession, server: &mut TlsSession) -> io::Result<()> {
    while client.is_handshaking() || server.is_handshaking() {
        deliver(client, server)?;
        deliver(server, client)?;
    }
    Ok(())
}

fn pair(files: &Files) -> (TlsSession, TlsSession) {
    let mut client = files.client().session("localhost").unwrap();
    let mut server = files.server().session().unwrap();
    handshake(&mut client, &mut server).unwrap();
    (client, server)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However the socket takes the records: what counts as accepted is never more than what the
    /// socket has accepted, and less by at most one record; nothing is lost or repeated.
    #[test]
    fn accepted_bytes_are_those_of_the_socket(
        length in 1_usize..100_000,
        rooms in vec(1_usize..20_000, 1..50),
    ) {
        let files = Files::new("exact");
        let (mut client, mut server) = pair(&files);
        let data: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        let (mut accepted, mut wire, mut heard) = (0, 0, Vec::new());
        let mut rooms = rooms.iter().cycle();
        while accepted < data.len() {
            let mut pipe = Pipe { bytes: Vec::new(), room: vec![*rooms.next().unwrap()] };
            accepted += client.write(&data[accepted..], |bytes| Ok(pipe.put(bytes))).unwrap();
            wire += pipe.bytes.len();
            prop_assert!(accepted <= wire, "{accepted} of {wire}");
            // Each record has 22 bytes around its data.
            prop_assert!(wire - accepted <= 22 * (wire / 23 + 1));
            prop_assert_eq!(accepted == data.len(), !client.wants_write() && accepted == data.len());
            heard.extend(read_all(&mut server, &mut pipe).unwrap());
            prop_assert!(heard.len() <= accepted);
        }
        prop_assert_eq!(wire, length + 22 * length.div_ceil(1 << 14));
        prop_assert!(heard == data);
    }
}

/// The rest of a record may leave without data of the application, and counts as accepted in the next
/// write.
#[test]
fn bytes_that_leave_between_writes_are_counted() {
    let files = Files::new("between");
    let (mut client, mut server) = pair(&files);
    let data: Vec<u8> = (0..50_000).map(|n| (n % 251) as u8).collect();
    let (mut accepted, mut heard) = (0, Vec::new());
    for room in [9_000, 20_000].into_iter().cycle() {
        if accepted == data.len() {
            break;
        }
        let mut pipe = Pipe {
            bytes: Vec::new(),
            room: vec![room, 5_000],
        };
        accepted += client
            .write(&data[accepted..], |bytes| Ok(pipe.put(bytes)))
            .unwrap();
        pipe.room = vec![room];
        let between = client.write(&[], |bytes| Ok(pipe.put(bytes)));
        assert_eq!(between.unwrap(), 0);
        heard.extend(read_all(&mut server, &mut pipe).unwrap());
    }
    assert!(heard == data);
    assert!(!client.wants_write());
}

#[test]
fn a_full_socket_accepts_nothing() {
    let files = Files::new("full");
    let (mut client, _) = pair(&files);
    let data = vec![7; 50_000];
    let mut put = 0;
    for _ in 0..3 {
        let accepted = client.write(&data, |bytes| {
            put = put.max(bytes.len());
            Ok(0)
        });
        assert_eq!(accepted.unwrap(), 0);
    }
    // One record, encrypted once.
    assert_eq!(put, (1 << 14) + 22);
}

#[test]
fn the_end_of_a_stream_is_read_with_and_without_an_alert() {
    let files = Files::new("end");
    let (mut client, mut server) = pair(&files);
    client.close();
    let mut pipe = Pipe::default();
    client
        .write(&[], |bytes| Ok(pipe.bytes.write(bytes).unwrap()))
        .unwrap();
    assert_eq!(server.read(&mut pipe, &mut [0]).unwrap(), Some(0));
    let (_, mut server) = pair(&files);
    assert_eq!(server.read(&mut io::empty(), &mut [0]).unwrap(), Some(0));
}

#[test]
fn tampered_records_are_errors() {
    let files = Files::new("tampered");
    let (mut client, mut server) = pair(&files);
    let mut pipe = Pipe::default();
    let put = |bytes: &[u8]| Ok(pipe.bytes.write(bytes).unwrap());
    client.write(b"a picture", put).unwrap();
    *pipe.bytes.last_mut().unwrap() ^= 1;
    let error = server.read(&mut pipe, &mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn other_certificates_are_rejected_with_their_fingerprint() {
    let (files, other) = (Files::new("pinned"), Files::new("other"));
    let mut client = other.client().session("localhost").unwrap();
    let mut server = files.server().session().unwrap();
    let error = reason(&handshake(&mut client, &mut server).unwrap_err());
    let found = files.identity().fingerprint();
    assert!(
        error.contains(&format!("its fingerprint is {found}")),
        "{error}"
    );
}

#[test]
fn an_authority_vouches_for_a_name() {
    let files = Files::new("authority");
    let connect = |accepted: &Accepted, name| {
        let client = TlsClient::new(accepted, None).unwrap();
        let mut client = client.session(name).unwrap();
        handshake(&mut client, &mut files.server().session().unwrap())
    };
    connect(&files.issued(), "localhost").unwrap();
    assert!(connect(&files.issued(), "example.org").is_err());
    assert!(connect(&Files::new("authority-2").issued(), "localhost").is_err());
}

#[test]
fn a_listening_end_verifies_connecting_ends() {
    let (files, camera) = (Files::new("listening"), Files::new("camera"));
    let stranger = Files::new("stranger");
    for accepted in [camera.pinned(), camera.issued()] {
        let server = TlsServer::new(&files.identity(), Some(&accepted)).unwrap();
        let connect = |shown: Option<&Files>| {
            let shown = shown.map(Files::identity);
            let client = TlsClient::new(&files.pinned(), shown.as_ref()).unwrap();
            let mut client = client.session("localhost").unwrap();
            handshake(&mut client, &mut server.session().unwrap())
        };
        connect(Some(&camera)).unwrap();
        assert!(connect(Some(&stranger)).is_err());
        assert!(connect(None).is_err());
    }
    // A listening end that asks for no certificate.
    let client = TlsClient::new(&files.pinned(), Some(&camera.identity())).unwrap();
    let mut client = client.session("localhost").unwrap();
    handshake(&mut client, &mut files.server().session().unwrap()).unwrap();
}

#[test]
fn unusable_files_are_named() {
    let (files, other) = (Files::new("files"), Files::new("files-2"));
    let read = |certificate: &Path, key: &Path| {
        let refused = Identity::read(certificate, key);
        let refused = refused.and_then(|identity| TlsServer::new(&identity, None));
        refused.unwrap_err().to_string()
    };
    let error = read(&files.certificate(), &other.key());
    assert!(error.contains("belongs to the certificate"), "{error}");
    let error = read(&files.certificate(), Path::new("/nosuch/key"));
    assert!(error.contains("cannot read /nosuch/key"), "{error}");
    let error = read(&files.key(), &files.key());
    assert!(error.contains("key.pem has no certificate"), "{error}");
    for mode in [0o644, 0o640, 0o620] {
        fs::set_permissions(files.key(), Permissions::from_mode(mode)).unwrap();
        let error = read(&files.certificate(), &files.key());
        assert!(error.contains("chmod 600"), "{error}");
    }
}

#[test]
fn fingerprints_are_read_as_they_are_printed() {
    let files = Files::new("fingerprint");
    let fingerprint = files.identity().fingerprint();
    let text = fingerprint.to_string();
    assert_eq!(text.len(), 71);
    assert_eq!(text.parse(), Ok(fingerprint));
    let (_, digits) = text.split_once(':').unwrap();
    let pairs: Vec<String> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
        .collect();
    assert_eq!(
        format!("sha256:{}", pairs.join(":")).parse(),
        Ok(fingerprint)
    );
    for wrong in ["", digits, "sha256:", "sha256:00", &text[..70], "sha256:zz"] {
        let error = wrong.parse::<Fingerprint>().unwrap_err();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}
