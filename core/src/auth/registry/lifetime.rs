//! How long a realm lives, and how far its own manager may choose that (admin.md §1.5, §4.4). Knows no
//! registry and no clock.

use std::time::Duration;

use super::super::ManagementToken;

/// How long a realm is to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Until somebody removes it.
    #[default]
    Permanent,
    /// From now on so long; `None`: as `auth.ephemeral_realm_ttl` says.
    Ephemeral(Option<Duration>),
}

/// A realm's lifetime as far as the management tokens that own it let its own key choose (admin.md §4.4):
/// `ephemeral_only` and `max_ttl` each make it ephemeral, the smallest `max_ttl` bounds it, in whole seconds
/// rounded up.
pub fn clamp<'a>(
    wished: Lifetime,
    owners: impl IntoIterator<Item = &'a ManagementToken>,
    default_ttl: Duration,
) -> Lifetime {
    let mut must_end = false;
    let mut most: Option<Duration> = None;
    for owner in owners {
        must_end |= owner.ephemeral_only || owner.max_ttl.is_some();
        most = match (most, owner.max_ttl) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    let wished = match wished {
        Lifetime::Permanent if !must_end => return Lifetime::Permanent,
        Lifetime::Permanent => default_ttl,
        Lifetime::Ephemeral(ttl) => ttl.unwrap_or(default_ttl),
    };
    let Some(most) = most.filter(|most| *most < wished) else {
        return Lifetime::Ephemeral(Some(wished));
    };
    let seconds = most.as_secs() + u64::from(most.subsec_nanos() > 0);
    Lifetime::Ephemeral(Some(Duration::from_secs(seconds)))
}
