//! `restante admin tokens`, `management-tokens`, `external` and `requests`.

use serde_json::Value;

use super::super::args::{External, ManagementTokens, Requests, Tokens};
use super::super::secrets::{Given, mint, usage};
use super::{Act, Danger, Desk, List, Members, Plan, Step, View, duration, json, members};
use crate::Result;
use crate::auth::ValidatorUrl;

pub(super) fn tokens(tokens: Tokens, desk: &mut Desk<'_>) -> Result<Plan> {
    match tokens {
        Tokens::Add {
            realm,
            role,
            client_id,
            client_name,
            token,
            allow,
            names,
        } => {
            let realm = desk.needed(realm, "realm")?;
            let said = View::Said(format!("token for realm {realm} added, role {role}"));
            let names = (!names.is_empty()).then_some(names);
            let body = members([
                ("realm", realm.into()),
                ("role", role.into()),
                ("client_id", client_id.into()),
                ("client_name", client_name.into()),
                ("allow", json("allow", allow.as_deref())?),
                ("names", names.into()),
            ]);
            let mut step = Step::command("add_token", body, said)?;
            if let Some(source) = token.filter(|source| source != "generate") {
                step.carry("token", desk.some_secret("token", &source, "token")?);
            }
            Ok(step.into())
        }
        Tokens::Revoke {
            hash,
            client_id,
            realm,
            token,
            allow_admin,
        } => {
            let which = match (&hash, &client_id, &token) {
                (Some(hash), ..) => format!("the token with hash {hash}"),
                (_, Some(client), _) => format!("the tokens of client {client}"),
                (.., Some(_)) => "this token".to_owned(),
                _ => return Err(usage("give --hash, --realm with --client-id, or --token")),
            };
            let text = match &token {
                Some(source) => Some(desk.some_secret("token", source, "token")?.text),
                None => None,
            };
            let body = members([
                ("token_hash", hash.into()),
                ("client_id", client_id.into()),
                ("realm", realm.into()),
                ("token", text.into()),
                ("allow_admin", allow_admin.then_some(true).into()),
            ]);
            let said = View::Said(format!("{which}: revoked"));
            let plan: Plan = Step::command("revoke_token", body, said)?.into();
            let question = format!("This ends {which}, and the sessions let in by it. Sure? ");
            Ok(plan.dangerous(Danger::Confirm(question)))
        }
        Tokens::List { realm } => {
            Step::command("get", Members::new(), View::Listed(List::Tokens, realm)).map(Plan::from)
        }
    }
}

pub(super) fn management_tokens(tokens: ManagementTokens, desk: &mut Desk<'_>) -> Result<Plan> {
    match tokens {
        ManagementTokens::Add {
            prefix,
            token,
            ephemeral_only,
            max_ttl,
        } => {
            let given = desk.some_secret("token", &token, "token")?;
            let said = View::Said(format!("management token for realms {prefix}… added"));
            let body = members([
                ("token", given.text.as_str().into()),
                ("realm_prefix", prefix.into()),
                ("ephemeral_only", ephemeral_only.then_some(true).into()),
                ("max_ttl", max_ttl.into()),
            ]);
            let mut step = Step::command("add_management_token", body, said)?;
            step.carry("token", given);
            Ok(step.into())
        }
        ManagementTokens::Revoke { hash } => {
            let body = members([("token_hash", hash.into())]);
            let said = View::Said("management token revoked".to_owned());
            let plan: Plan = Step::command("revoke_management_token", body, said)?.into();
            let question = "This ends the management token. Sure? ".to_owned();
            Ok(plan.dangerous(Danger::Confirm(question)))
        }
        ManagementTokens::List => {
            let list = View::Listed(List::ManagementTokens, None);
            Step::command("get", Members::new(), list).map(Plan::from)
        }
    }
}

pub(super) fn external(external: External, desk: &mut Desk<'_>) -> Result<Plan> {
    let (url, secret, realm, prefix) = match external {
        External::Set {
            url,
            secret,
            realm,
            prefix,
        } => (url, secret, realm, prefix),
        External::Clear { realm, prefix } => (String::new(), None, realm, prefix),
    };
    let whose = match (&realm, &prefix) {
        (Some(realm), _) => format!("realm {realm}"),
        (_, Some(prefix)) => format!("realms {prefix}…"),
        _ => "all realms".to_owned(),
    };
    let address = desk.address("url", &url)?;
    let said = match url.is_empty() {
        true => format!("the validator of {whose} is gone"),
        false => {
            // What its query holds may be a secret.
            let url = ValidatorUrl::parse(&address)?.shown();
            format!("{url} is asked about tokens of {whose}")
        }
    };
    let body = members([
        ("auth_url", address.into()),
        ("realm", realm.into()),
        ("realm_prefix", prefix.into()),
    ]);
    let mut step = Step::command("set_external_auth", body, View::Said(said))?;
    if let Some(source) = secret {
        let given = desk.secret("secret", &source, "secret")?;
        // An empty text clears it, nothing at all would keep it.
        step.carry(
            "auth_secret",
            given.unwrap_or(Given {
                text: String::new(),
                is_minted: false,
            }),
        );
    }
    Ok(step.into())
}

pub(super) fn requests(requests: Requests, desk: &mut Desk<'_>) -> Result<Plan> {
    match requests {
        Requests::Submit {
            realm,
            role,
            client_id,
            client_name,
            client_token,
            challenge_response,
            wait,
        } => {
            let wait = wait.map(|text| duration("wait", &text)).transpose()?;
            let client_id = match client_id {
                Some(id) => id,
                None => format!("client-{}", mint(6)?),
            };
            let client_name = client_name.unwrap_or_else(|| client_id.clone());
            let body = members([
                ("realm", realm.into()),
                ("role", role.into()),
                ("client_id", client_id.into()),
                ("client_name", client_name.into()),
                (
                    "challenge_response",
                    json("challenge-response", challenge_response.as_deref())?,
                ),
            ]);
            let mut step = Step::new(Act::Submit(wait), body, View::Outline(None));
            let source = client_token.as_deref().unwrap_or("generate");
            step.carry(
                "client_token",
                desk.some_secret("client-token", source, "token")?,
            );
            Ok(step.into())
        }
        Requests::Next { realm } => {
            let body = members([("realm", realm.into())]);
            Ok(Step::new(Act::Next, body, View::Request).into())
        }
        Requests::List {
            realm,
            status,
            limit,
            cursor,
        } => {
            let body = members([
                ("realm", realm.into()),
                ("status", status.into()),
                ("limit", limit.into()),
                ("cursor", cursor.into()),
            ]);
            let rows = View::Rows {
                member: "requests",
                columns: &[
                    "request_id",
                    "status",
                    "realm",
                    "role",
                    "client_id",
                    "client_name",
                    "created_at",
                ],
            };
            Step::command("authorization_list", body, rows).map(Plan::from)
        }
        Requests::Approve { id, role } => decide(desk, id, true, ("role", role.into())),
        Requests::Reject { id, reason } => decide(desk, id, false, ("reason", reason.into())),
    }
}

fn decide(
    desk: &mut Desk<'_>,
    id: Option<String>,
    approved: bool,
    more: (&str, Value),
) -> Result<Plan> {
    let id = desk.needed(id, "request id")?;
    let word = if approved { "approved" } else { "rejected" };
    let said = View::Said(format!("request {id} {word}"));
    let body = members([
        ("request_id", id.into()),
        ("approved", approved.into()),
        more,
    ]);
    Ok(Step::new(Act::Decide, body, said).into())
}
