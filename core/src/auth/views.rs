//! What managers are shown (admin.md §4.1): everything but secrets, of which only whether there is one, and
//! hashes of tokens. The only place of this room where JSON values are made. Called by `admin`.

use serde_json::{Map, Value, json};

use super::outside::{ExternalValidator, ValidatorUrl};
use super::state::State;
use super::{Auth, E2ee, KeylessConsumers, ManagementToken, RealmConfig, Secret, Token, TokenHash};
use crate::model::RealmId;

/// What stands where a secret is.
const CONFIGURED: &str = "<configured>";

fn insert<T: Into<Value>>(into: &mut Map<String, Value>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        into.insert(name.to_owned(), value.into());
    }
}

/// One realm.
pub(super) fn realm(config: &RealmConfig) -> Value {
    let mut view = Map::new();
    insert(&mut view, "required", config.required);
    insert(&mut view, "require_key", config.require_key);
    insert(&mut view, "require_acceptance", config.require_acceptance);
    insert(&mut view, "allow_anonymous", config.allow_anonymous);
    let e2ee = Some(config.e2ee).filter(|e2ee| *e2ee != E2ee::Off);
    insert(&mut view, "e2ee", e2ee.map(E2ee::as_str));
    insert(
        &mut view,
        "ephemeral",
        Some(true).filter(|_| config.ephemeral),
    );
    insert(&mut view, "expires_at", config.expires_at.map(|end| end.0));
    insert(
        &mut view,
        "auth_url",
        config.auth_url.as_ref().map(ValidatorUrl::shown),
    );
    for (name, is_set) in [
        ("manager_key_configured", config.manager_key.is_some()),
        ("jwt_key_configured", config.jwt_key.is_some()),
        ("key_configured", config.key.is_some()),
        ("auth_secret_configured", config.auth_secret.is_some()),
    ] {
        view.insert(name.to_owned(), is_set.into());
    }
    Value::Object(view)
}

/// One token.
pub fn token_view(hash: &TokenHash, token: &Token) -> Value {
    let mut view = Map::new();
    view.insert("realm".to_owned(), token.realm.as_str().into());
    view.insert("role".to_owned(), token.role.as_str().into());
    view.insert("client_id".to_owned(), token.client_id.as_deref().into());
    view.insert(
        "client_name".to_owned(),
        token.client_name.as_deref().into(),
    );
    view.insert("token_hash".to_owned(), hash.to_string().into());
    insert(&mut view, "approved_at", token.approved_at.as_deref());
    let list = |texts: Vec<&str>| Value::from(texts);
    let events = |patterns: Option<&[crate::model::TopicPattern]>| {
        patterns.map(|patterns| list(patterns.iter().map(|pattern| pattern.as_str()).collect()))
    };
    let mut allow = Map::new();
    insert(
        &mut allow,
        "produce",
        events(token.allow.produce.as_deref()),
    );
    insert(
        &mut allow,
        "consume",
        events(token.allow.consume.as_deref()),
    );
    insert(
        &mut view,
        "allow",
        Some(allow).filter(|allow| !allow.is_empty()),
    );
    let names = token.allow.names.as_deref();
    let names = names.map(|names| list(names.iter().map(|name| name.as_str()).collect()));
    insert(&mut view, "names", names);
    Value::Object(view)
}

fn management(hash: &TokenHash, token: &ManagementToken) -> Value {
    let mut view = Map::new();
    view.insert("realm_prefix".to_owned(), (*token.realm_prefix).into());
    view.insert("token_hash".to_owned(), hash.to_string().into());
    insert(
        &mut view,
        "ephemeral_only",
        Some(true).filter(|_| token.ephemeral_only),
    );
    insert(
        &mut view,
        "max_ttl",
        token.max_ttl.map(|ttl| ttl.as_secs_f64()),
    );
    Value::Object(view)
}

fn validator(prefix: &str, one: &ExternalValidator) -> Value {
    json!({
        "realm_prefix": prefix,
        "auth_url": one.url.shown(),
        "auth_secret_configured": one.secret.is_some(),
    })
}

/// Everything.
pub(super) fn everything(state: &State) -> Value {
    let settings = &state.settings;
    let realms = state.realms();
    let realms = realms.map(|(name, config)| (name.as_str().to_owned(), realm(config)));
    let mut tokens: Vec<_> = state.tokens().collect();
    tokens.sort_by_key(|(hash, token)| (token.realm.clone(), token.client_id.clone(), **hash));
    let tokens = tokens.iter().map(|(hash, token)| token_view(hash, token));
    let management = state.management.iter();
    let prefixes = state.validators.prefixes.iter();
    let mut view = json!({
        "enabled": state.enabled,
        "realms": realms.collect::<Map<_, _>>(),
        "tokens": tokens.collect::<Vec<_>>(),
        "management_tokens": management
            .map(|(hash, token)| self::management(hash, token)).collect::<Vec<_>>(),
        "monitor_tokens": settings.monitor_tokens.len(),
        "external_validators": prefixes
            .map(|(prefix, one)| validator(prefix, one)).collect::<Vec<_>>(),
        "ephemeral_realm_ttl": settings.ephemeral_realm_ttl.as_secs_f64(),
        "keyless_consumers": match settings.keyless_consumers {
            KeylessConsumers::DefaultRealm => "default-realm",
            KeylessConsumers::Allow => "allow",
            KeylessConsumers::Deny => "deny",
        },
        "allow_superadmin_jwt": settings.allow_superadmin_jwt,
        "allow_insecure_management": settings.allow_insecure_management,
        "enforce_expiry": settings.enforce_expiry,
        "admin_token_env": &*settings.admin_token_env,
        "auto_admin_token": settings.auto_admin_token,
        "admin_token_configured": state.bootstrap.is_some(),
    });
    if let Some(view) = view.as_object_mut() {
        let configured = |secret: &Option<Secret>| secret.as_ref().map(|_| CONFIGURED);
        insert(view, "jwt_secret", configured(&settings.jwt_secret));
        insert(view, "auth_secret", configured(&state.validators.secret));
        let global = state.validators.global.as_ref();
        insert(view, "auth_url", global.map(|one| one.url.shown()));
        insert(
            view,
            "jwt_max_ttl",
            settings.jwt_max_ttl.map(|ttl| ttl.as_secs_f64()),
        );
        let file = settings.env_file.as_ref();
        insert(
            view,
            "env_file",
            file.map(|path| path.display().to_string()),
        );
    }
    view
}

impl Auth {
    /// The `auth` part of the management view: what is configured, without any secret.
    pub fn view(&self) -> Value {
        everything(&self.0.state.read())
    }

    /// What the holder of a realm's key is shown: `{realms: {<realm>: …}}`, nothing of others.
    pub fn realm_view(&self, realm: &RealmId) -> Value {
        let state = self.0.state.read();
        let shown = state.realm(realm);
        let shown = shown.map(|config| (realm.as_str().to_owned(), self::realm(config)));
        json!({ "realms": shown.into_iter().collect::<Map<_, _>>() })
    }
}
