//! The body of a command → [`Command`], under all the names that clients use.

use std::time::Duration;

use crate::auth::{
    Allow, E2ee, Lifetime, ManagementToken, NewRealm, NewToken, Role, SecretChange, TokenChoice,
    TokenText, ValidatorScope, ValidatorUrl,
};
use crate::store::{DeadLetterId, QueueId};
use crate::{Error, ErrorKind, Result};

use super::super::body::Body;
use super::{Command, RealmChange, StoreWish, WhichLetter, WhichSession};

const KEY: &[&str] = &["key", "preshared_key", "presharedKey"];
const MANAGER_KEY: &[&str] = &["manager_key", "managerKey"];
const JWT_KEY: &[&str] = &["jwt_key", "jwtKey"];
const REQUIRE_KEY: &[&str] = &["require_key", "requireKey"];
const DISPOSABLE: &[&str] = &["ephemeral", "temporary", "disposable"];
const LETTER: &[&str] = &["msg_id", "msgId", "id"];
const ANONYMOUS: &[&str] = &["allow_anonymous", "allowAnonymous"];
const STORAGES: [&str; 4] = ["memory", "sqlite", "redis", "custom"];
const ACCEPTANCE: &[&str] = &["require_acceptance", "requireAcceptance"];

fn bad(text: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::BadCommand, text)
}

impl Command {
    /// Reads a command from the JSON text of its body.
    ///
    /// # Errors
    /// `bad_command`, also for a command nobody knows; `bad_name`.
    pub fn parse(body: &str) -> Result<Self> {
        let body = Body::read(body)?;
        let name = body.needed(&["command"])?;
        match &*name {
            "get" => Ok(Self::Get),
            "stats" => Ok(Self::Stats),
            "reload_settings" => Ok(Self::ReloadSettings),
            "set_persistence" => Ok(Self::SetPersistence(StoreWish(persistence(body)?))),
            name if name.starts_with("dlq_") || name.starts_with("queue_") => queues(name, &body),
            name if name.contains("realm") => realms(name, &body),
            name => credentials(name, &body),
        }
    }
}

fn unknown(name: &str) -> Error {
    bad(format!("there is no command {name:?}"))
}

fn realms(name: &str, body: &Body) -> Result<Command> {
    let change =
        match name {
            "add_realm" => return add_realm(body),
            "rename_realm" => {
                return Ok(Command::RenameRealm {
                    from: body.named_realm("from")?,
                    to: body.named_realm("to")?,
                });
            }
            "remove_realm" => {
                return Ok(Command::RemoveRealm {
                    realm: body.realm()?,
                });
            }
            "set_realm_auth" => RealmChange::Required(body.needed_flag(&["required"])?),
            "set_realm_manager_key" => RealmChange::ManagerKey(body.secret(MANAGER_KEY)?),
            "set_realm_jwt_key" => RealmChange::JwtKey(body.secret(JWT_KEY)?),
            "set_realm_key" => RealmChange::Key(body.secret(KEY)?, body.flag(REQUIRE_KEY)?),
            "set_realm_acceptance" => RealmChange::Acceptance(body.needed_flag(&["required"])?),
            "set_realm_anonymous" => RealmChange::Anonymous(body.needed_flag(ANONYMOUS)?),
            "set_realm_e2ee" => {
                let policy = body.needed(&["e2ee", "policy"])?;
                RealmChange::E2ee(E2ee::parse(&policy).ok_or_else(|| {
                    bad("e2ee must be \"off\", \"opportunistic\" or \"required\"")
                })?)
            }
            "set_realm_lifetime" => {
                let is_disposable = body.truthy(DISPOSABLE).unwrap_or(true);
                RealmChange::Lifetime(lifetime(is_disposable, body.ttl()?))
            }
            _ => return Err(unknown(name)),
        };
    Ok(Command::SetRealm {
        realm: body.realm()?,
        change,
        create: body.flag(&["create"])?.unwrap_or(false),
    })
}

fn lifetime(is_disposable: bool, ttl: Option<Duration>) -> Lifetime {
    match is_disposable {
        true => Lifetime::Ephemeral(ttl),
        false => Lifetime::Permanent,
    }
}

fn add_realm(body: &Body) -> Result<Command> {
    let ttl = body.ttl()?;
    let is_disposable = ttl.is_some() || body.truthy(DISPOSABLE).unwrap_or(false);
    let e2ee = body.text(&["e2ee"])?.as_deref().and_then(E2ee::parse);
    Ok(Command::AddRealm {
        realm: body.realm()?,
        new: Box::new(NewRealm {
            required: Some(body.flag(&["required"])?.unwrap_or(true)),
            manager_key: body.secret(MANAGER_KEY)?,
            jwt_key: body.secret(JWT_KEY)?,
            key: body.secret(KEY)?,
            require_key: body.flag(REQUIRE_KEY)?,
            require_acceptance: body.flag(ACCEPTANCE)?,
            allow_anonymous: body.flag(ANONYMOUS)?,
            e2ee: e2ee.unwrap_or_default(),
            lifetime: lifetime(is_disposable, ttl),
        }),
    })
}

fn credentials(name: &str, body: &Body) -> Result<Command> {
    Ok(match name {
        "set_global_auth" => Command::SetGlobalAuth {
            enabled: body.needed_flag(&["enabled"])?,
        },
        "set_external_auth" => external(body)?,
        "add_management_token" => Command::AddManagementToken {
            token: body.needed_secret(&["token"])?,
            bounds: ManagementToken::new(
                &body.needed(&["realm_prefix", "realmPrefix"])?,
                body.flag(&["ephemeral_only", "ephemeralOnly"])?
                    .unwrap_or(false),
                body.lifetime("max_ttl")?,
            )?,
        },
        "revoke_management_token" => {
            let hash = body.token_hash()?;
            Command::RevokeManagementToken {
                token: hash.ok_or_else(|| bad("token_hash must be given"))?,
            }
        }
        "add_token" => add_token(body)?,
        "revoke_token" => {
            let (which, by_text) = which_token(body)?;
            let allow_admin = body.flag(&["allow_admin", "allowAdmin"])?;
            Command::RevokeToken {
                which,
                by_text,
                allow_admin: allow_admin.unwrap_or(false),
            }
        }
        "authorization_list" => Command::AuthorizationList {
            realm: body.any_realm()?,
            status: body.text(&["status"])?,
            cursor: body.text(&["cursor"])?,
            limit: body.count(&["limit"], 100, 1_000)?,
        },
        "list_sessions" => Command::ListSessions {
            realm: body.any_realm()?,
        },
        "disconnect" => disconnect(body)?,
        _ => return Err(unknown(name)),
    })
}

fn external(body: &Body) -> Result<Command> {
    let prefix = body.filled(&["realm_prefix", "realmPrefix"])?;
    let scope = match (body.any_realm()?, prefix) {
        (None, None) => ValidatorScope::Global,
        (Some(realm), None) => ValidatorScope::Realm(realm),
        (None, Some(prefix)) => ValidatorScope::Prefix(prefix.into()),
        (Some(_), Some(_)) => return Err(bad("give realm or realm_prefix, not both")),
    };
    let url = body.filled(&["auth_url", "authUrl"])?;
    // Absent keeps what is there, an empty text clears it.
    let names = &["auth_secret", "authSecret"];
    let secret = match (body.get(names), body.secret(names)?) {
        (None, _) => SecretChange::Keep,
        (Some(_), None) => SecretChange::Clear,
        (Some(_), Some(secret)) => SecretChange::Set(secret),
    };
    Ok(Command::SetExternalAuth {
        scope,
        url: url.as_deref().map(ValidatorUrl::parse).transpose()?,
        secret,
    })
}

fn add_token(body: &Body) -> Result<Command> {
    let role = body.text(&["role"])?;
    let role = Role::parse(role.as_deref().unwrap_or("both"));
    let named = |names| Ok::<_, Error>(body.filled(names)?.map(Into::into));
    Ok(Command::AddToken(Box::new(NewToken {
        realm: body.realm()?,
        role: role.ok_or_else(|| bad("role must be producer, consumer, both, manager or admin"))?,
        client_id: named(&["client_id", "clientId"])?,
        client_name: named(&["client_name", "clientName"])?,
        approved_at: None,
        allow: Allow::parse(body.get(&["allow"]), body.get(&["names"]))?,
        text: body
            .secret(&["token"])?
            .map_or(TokenText::Mint, TokenText::Given),
    })))
}

/// Which tokens, and whether by text.
fn which_token(body: &Body) -> Result<(TokenChoice, bool)> {
    if let Some(token) = body.secret(&["token"])? {
        return Ok((TokenChoice::Hash(token.hash()), true));
    }
    if let Some(hash) = body.token_hash()? {
        return Ok((TokenChoice::Hash(hash), false));
    }
    match (body.any_realm()?, body.filled(&["client_id", "clientId"])?) {
        (Some(realm), Some(client)) => {
            let client_id = client.into();
            Ok((TokenChoice::Client { realm, client_id }, false))
        }
        _ => Err(bad("give token, token_hash, or realm and client_id")),
    }
}

fn disconnect(body: &Body) -> Result<Command> {
    let realm = body.any_realm()?;
    let socket = body.filled(&["socket_id", "socketId"])?;
    let client = body.filled(&["client_id", "clientId"])?;
    let which = match (socket, client, &realm) {
        (Some(socket), _, _) => WhichSession::Socket(socket),
        (None, Some(client), _) => WhichSession::Client(client),
        (None, None, Some(_)) => WhichSession::All,
        (None, None, None) => return Err(bad("give socket_id, client_id or realm")),
    };
    Ok(Command::Disconnect { which, realm })
}

fn queues(name: &str, body: &Body) -> Result<Command> {
    Ok(match name {
        "dlq_list" => Command::DlqList {
            realm: body.any_realm()?,
            cursor: body.text(&["cursor"])?,
            limit: body.count(&["limit"], 100, 1_000)?,
        },
        "dlq_replay" | "dlq_requeue" => Command::DlqReplay(letter(body)?),
        "dlq_discard" => Command::DlqDiscard(letter(body)?),
        "dlq_purge" => Command::DlqPurge {
            realm: body.realm()?,
        },
        "queue_stats" => Command::QueueStats {
            realm: body.any_realm()?,
        },
        "queue_release" => {
            let queue = body.needed(&["queue"])?.parse().ok();
            Command::QueueRelease {
                realm: body.realm()?,
                queue: QueueId(queue.ok_or_else(|| bad("queue must be a queue's id"))?),
            }
        }
        _ => return Err(unknown(name)),
    })
}

fn letter(body: &Body) -> Result<WhichLetter> {
    let id = body.needed(LETTER)?.parse::<DeadLetterId>();
    let unknown = |_| Error::new(ErrorKind::DeadLetterUnknown, "no such dead letter is known");
    Ok(WhichLetter {
        id: id.map_err(unknown)?,
        realm: body.any_realm()?,
    })
}

/// The members that say which store, without those that are the command's.
fn persistence(body: Body) -> Result<serde_json::Map<String, serde_json::Value>> {
    if !body.has(&["storage", "backend", "store"]) {
        return Err(bad("storage must be memory, sqlite, redis or custom"));
    }
    let mut members = body.into_members();
    members.remove("command");
    for name in ["backend", "store"] {
        if let Some(storage) = members.remove(name) {
            members.entry("storage").or_insert(storage);
        }
    }
    let storage = members.get("storage").and_then(serde_json::Value::as_str);
    if !storage.is_some_and(|storage| STORAGES.contains(&storage)) {
        return Err(bad("storage must be memory, sqlite, redis or custom"));
    }
    let options = ["options", "storageOptions", "storage_options"];
    let mut inner = serde_json::Map::new();
    for name in options {
        match members.remove(name) {
            None | Some(serde_json::Value::Null) => {}
            Some(serde_json::Value::Object(given)) => inner.extend(given),
            Some(_) => return Err(bad("storage_options must be an object")),
        }
    }
    // What a person writes beside the command (§4.3).
    for (name, as_what) in [
        ("default_ttl", "default_ttl"),
        ("filename", "filename"),
        ("path", "filename"),
        ("url", "url"),
        ("prefix", "prefix"),
        ("module", "module"),
        ("module_path", "module"),
    ] {
        if let Some(value) = members.remove(name).filter(|value| !value.is_null()) {
            inner.insert(as_what.to_owned(), value);
        }
    }
    members.insert("storage_options".to_owned(), inner.into());
    Ok(members)
}
