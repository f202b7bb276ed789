//! tmp
pub const LEN: usize = 2;
pub fn emit_number(n: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_be_bytes());
}
pub struct Original<'a> {
    pub sequence: u16,
    pub payload: &'a [u8],
}
pub fn unwrap(p: &[u8]) -> Result<Original<'_>, ()> {
    if p.len() < 2 {
        return Err(());
    }
    Ok(Original {
        sequence: u16::from_be_bytes([p[0], p[1]]),
        payload: &p[2..],
    })
}
