//! What the broker asks about rights by itself, answered by `auth`.

use std::sync::Arc;

use crate::auth::Auth;
use crate::broker::Rights;
use crate::model::{RealmId, fold};

/// See the module.
pub(super) struct AuthRights(pub(super) Arc<Auth>);

impl Rights for AuthRights {
    fn may_still_publish(&self, realm: &RealmId, owner: Option<&str>, event: &str) -> bool {
        self.0.may_still_publish(realm, owner, &fold(event))
    }

    fn allows_anonymous(&self, realm: &RealmId) -> bool {
        self.0.allows_anonymous(realm)
    }
}
