//! Sets of numbered values, with one bit for each.

/// Declares a set: its documentation, its name, its integer, and its member type, which has `ALL`
/// in the order of the numbers and a `name`.
macro_rules! set {
    ($(#[$doc:meta])* $set:ident($bits:ty) of $member:ident;) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        pub struct $set($bits);

        impl $set {
            /// The empty set.
            pub const NONE: Self = Self(0);
            /// All members.
            pub const ALL: Self = Self((1 << $member::ALL.len()) - 1);

            /// The set with one more member.
            #[must_use]
            pub fn with(self, member: $member) -> Self {
                Self(self.0 | 1 << member as u32)
            }

            /// The intersection.
            #[must_use]
            pub fn and(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// The union.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The difference.
            #[must_use]
            pub fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Whether the set has this member.
            pub fn contains(self, member: $member) -> bool {
                self.0 >> member as u32 & 1 == 1
            }

            /// Whether the set is empty.
            pub fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The set as one bit for each member, by its number.
            pub fn bits(self) -> $bits {
                self.0
            }

            /// The set with these bits. Bits without a member are ignored.
            pub fn from_bits(bits: $bits) -> Self {
                Self(bits & Self::ALL.0)
            }

            /// The members in the order of their numbers.
            pub fn iter(self) -> impl Iterator<Item = $member> {
                let all = $member::ALL.iter().copied();
                all.filter(move |&member| self.contains(member))
            }
        }

        impl FromIterator<$member> for $set {
            fn from_iter<I: IntoIterator<Item = $member>>(members: I) -> Self {
                members.into_iter().fold(Self::NONE, Self::with)
            }
        }

        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let names: Vec<&str> = self.iter().map($member::name).collect();
                f.write_str(if names.is_empty() { "none" } else { "" })?;
                f.write_str(&names.join(", "))
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{{{self}}}")
            }
        }
    };
}

pub(crate) use set;
