//! The user that the daemon becomes.

use std::ffi::CString;

use super::ServeError;
use crate::system::{group_number, group_of, user_and_group};

/// User and group of `USER` or `USER:GROUP`, each by name or number. Numbers need no entry on this
/// system, since users of containers often have none. The group has to be given then.
///
/// # Errors
///
/// The user or the group does not exist, or the group of the user is not known.
pub(super) fn ids(given: &str) -> Result<(u32, u32), ServeError> {
    // Names have no colon: it separates the fields of /etc/passwd.
    let (name, group) = match given.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (given, None),
    };
    let entry = CString::new(name).ok().and_then(|n| user_and_group(&n));
    let user = entry.map(|(user, _)| user).or_else(|| number(name));
    let user = user.ok_or_else(|| ServeError::NoUser(name.into()))?;
    let group = if let Some(group) = group {
        let named = CString::new(group).ok().and_then(|n| group_number(&n));
        let there = named.or_else(|| number(group));
        there.ok_or_else(|| ServeError::NoGroup(group.into()))?
    } else {
        let own = entry.map(|(_, group)| group).or_else(|| group_of(user));
        own.ok_or(ServeError::GroupUnknown(user))?
    };
    Ok((user, group))
}

/// A number of a user or a group. The largest one means "unchanged" in setresuid(2).
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number_and_need_no_entry() {
        assert!(group_of(UNLISTED).is_none(), "no test for this system");
        for (given, found) in [
            ("root", (0, 0)),
            ("0", (0, 0)),
            ("root:7", (0, 7)),
            ("4000000001:4000000002", (UNLISTED, 4_000_000_002)),
            ("4000000001:root", (UNLISTED, 0)),
        ] {
            assert_eq!(ids(given).unwrap(), found, "{given}");
        }
    }

    #[test]
    fn unknown_users_and_groups_are_named_with_the_fix() {
        for (given, parts) in [
            ("nosuchuser", ["no user `nosuchuser`", "UID:GID"]),
            ("", ["no user ``", "UID:GID"]),
            ("4294967295:1", ["no user `4294967295`", "UID:GID"]),
            ("root:nosuchgroup", ["no group `nosuchgroup`", "number"]),
            ("root:4294967295", ["no group `4294967295`", "number"]),
            ("root:", ["no group ``", "number"]),
            ("4000000001", ["user 4000000001", "--user 4000000001:GID"]),
        ] {
            let error = ids(given).unwrap_err().to_string();
            assert!(parts.iter().all(|p| error.contains(p)), "{given}: {error}");
        }
    }

    /// No user has this number.
    const UNLISTED: u32 = 4_000_000_001;
}
