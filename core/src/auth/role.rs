//! The roles a credential can carry. Knows no realm.

use super::Need;

/// What a session is let in as (admin.md §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// May produce.
    Producer,
    /// May consume.
    Consumer,
    /// May do both.
    Both,
    /// As [`Role::Both`]: management needs a proof, never a role.
    Manager,
    /// As [`Role::Both`], in realm `*`: sees every realm.
    Admin,
}

impl Role {
    /// Reads a role's name as it stands in tokens, claims and verbs; `None`: there is no such role.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "producer" => Self::Producer,
            "consumer" => Self::Consumer,
            "both" => Self::Both,
            "manager" => Self::Manager,
            "admin" => Self::Admin,
            _ => return None,
        })
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Both => "both",
            Self::Manager => "manager",
            Self::Admin => "admin",
        }
    }

    /// Whether it covers what a verb needs.
    pub const fn covers(self, need: Need) -> bool {
        match self {
            Self::Both | Self::Manager | Self::Admin => true,
            Self::Producer => matches!(need, Need::Produce | Need::Any),
            Self::Consumer => matches!(need, Need::Consume | Need::Any),
        }
    }
}
