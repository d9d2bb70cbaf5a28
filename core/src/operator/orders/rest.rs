//! `restante admin dlq`, `persistence`, `sessions`, `queues`, `settings` and `auth`.

use serde_json::Value;

use super::super::args::{Dlq, Persistence, Queues, Sessions, Settings, Switch};
use super::super::secrets::usage;
use super::{Act, Danger, Desk, List, Members, Plan, Step, View, json, members};
use crate::Result;

pub(super) fn dlq(dlq: Dlq) -> Result<Plan> {
    match dlq {
        Dlq::List {
            realm,
            limit,
            cursor,
        } => {
            let body = members([
                ("realm", realm.into()),
                ("limit", limit.into()),
                ("cursor", cursor.into()),
            ]);
            let rows = View::Rows {
                member: "entries",
                columns: &[
                    "id",
                    "realm",
                    "event",
                    "consumer",
                    "attempts",
                    "reason",
                    "dead_lettered_at",
                ],
            };
            Step::command("dlq_list", body, rows).map(Plan::from)
        }
        Dlq::Requeue { id, realm } => {
            let said = View::Said(format!("dead letter {id} is back in its queue"));
            Step::command("dlq_replay", letter(&id, realm), said).map(Plan::from)
        }
        Dlq::Discard { id, realm } => {
            let said = View::Said(format!("dead letter {id} is gone"));
            let plan: Plan = Step::command("dlq_discard", letter(&id, realm), said)?.into();
            let question = format!("This drops dead letter {id}. Sure? ");
            Ok(plan.dangerous(Danger::Confirm(question)))
        }
        Dlq::Purge { realm } => {
            let said = View::Said(format!("the dead letters of realm {realm} are gone"));
            let question = format!("This drops all dead letters of realm {realm}. Sure? ");
            let body = members([("realm", realm.into())]);
            let plan: Plan = Step::command("dlq_purge", body, said)?.into();
            Ok(plan.dangerous(Danger::Confirm(question)))
        }
    }
}

fn letter(id: &str, realm: Option<String>) -> Members {
    members([("msg_id", id.into()), ("realm", realm.into())])
}

pub(super) fn persistence(persistence: Persistence, desk: &mut Desk<'_>) -> Result<Plan> {
    let Persistence::Set {
        storage,
        filename,
        url,
        prefix,
        module,
        default_ttl,
        options,
        force,
    } = persistence
    else {
        let view = View::Listed(List::Persistence, None);
        return Step::command("get", Members::new(), view).map(Plan::from);
    };
    let mut inner = match json("options", options.as_deref())? {
        Value::Null => Members::new(),
        Value::Object(options) => options,
        _ => return Err(usage("--options must be a JSON object")),
    };
    // A password would stand on the command line.
    for address in ["url", "urls"].iter().filter_map(|name| inner.get(*name)) {
        if address.to_string().contains('@') {
            return Err(usage(
                "--options holds a password: give --url env:NAME, file:PATH or prompt",
            ));
        }
    }
    let url = url.map(|url| desk.address("url", &url)).transpose()?;
    inner.extend(members([
        ("filename", filename.into()),
        ("url", url.into()),
        ("prefix", prefix.into()),
        ("module", module.into()),
        ("default_ttl", default_ttl.into()),
    ]));
    let question = "What waits in a durable store will be in memory alone. Sure? ".to_owned();
    let danger = (storage == "memory" && force).then_some(Danger::Confirm(question));
    let said = View::Moved(storage.clone());
    let body = members([
        ("storage", storage.into()),
        ("storage_options", inner.into()),
        ("force", force.then_some(true).into()),
    ]);
    let mut step = Step::command("set_persistence", body, said)?;
    step.action = Act::Move;
    let mut plan = Plan::from(step);
    plan.danger = danger;
    Ok(plan)
}

pub(super) fn sessions(sessions: Sessions) -> Result<Plan> {
    match sessions {
        Sessions::List { realm } => {
            let rows = View::Rows {
                member: "sessions",
                columns: &[
                    "socket_id",
                    "realm",
                    "role",
                    "owner",
                    "producers",
                    "consumers",
                    "address",
                    "since",
                ],
            };
            let body = members([("realm", realm.into())]);
            Step::command("list_sessions", body, rows).map(Plan::from)
        }
        Sessions::Disconnect {
            socket,
            client_id,
            realm,
        } => {
            let which = match (&socket, &client_id, &realm) {
                (Some(socket), ..) => format!("session {socket}"),
                (_, Some(client), _) => format!("all sessions of client {client}"),
                (.., Some(realm)) => format!("all sessions of realm {realm}"),
                _ => return Err(usage("give --socket, --client-id or --realm")),
            };
            let is_one = socket.is_some();
            let body = members([
                ("socket_id", socket.into()),
                ("client_id", client_id.into()),
                ("realm", realm.into()),
            ]);
            let said = View::Said(format!("{which}: closed"));
            let mut plan: Plan = Step::command("disconnect", body, said)?.into();
            if !is_one {
                plan = plan.dangerous(Danger::Confirm(format!("This closes {which}. Sure? ")));
            }
            Ok(plan)
        }
    }
}

pub(super) fn queues(queues: Queues) -> Result<Plan> {
    match queues {
        Queues::Stats { realm } => {
            let rows = View::Rows {
                member: "queues",
                columns: &[
                    "queue",
                    "realm",
                    "key",
                    "kind",
                    "name",
                    "waiting",
                    "in_flight",
                    "oldest",
                    "sessions",
                ],
            };
            let body = members([("realm", realm.into())]);
            Step::command("queue_stats", body, rows).map(Plan::from)
        }
        Queues::Release { realm, queue } => {
            let said = View::Said(format!("queue {queue} has no owner now"));
            let question = format!("Whoever attaches next will own queue {queue}. Sure? ");
            let body = members([("realm", realm.into()), ("queue", queue.into())]);
            let plan: Plan = Step::command("queue_release", body, said)?.into();
            Ok(plan.dangerous(Danger::Confirm(question)))
        }
    }
}

pub(super) fn settings(settings: &Settings) -> Result<Plan> {
    let (command, view) = match settings {
        Settings::Show => ("get", View::Outline(Some("settings"))),
        Settings::Reload => (
            "reload_settings",
            View::Said("the settings were read".to_owned()),
        ),
    };
    Step::command(command, Members::new(), view).map(Plan::from)
}

pub(super) fn switch(switch: &Switch) -> Result<Plan> {
    let enabled = matches!(switch, Switch::On);
    let said = match enabled {
        true => "everybody has to log in now",
        false => "nobody has to log in any more",
    };
    let body = members([("enabled", enabled.into())]);
    let plan: Plan = Step::command("set_global_auth", body, View::Said(said.to_owned()))?.into();
    let question = match enabled {
        true => "Sessions that have not logged in are closed. Sure? ",
        false => "Everybody who reaches the broker may do everything. Sure? ",
    };
    Ok(plan.dangerous(Danger::Confirm(question.to_owned())))
}
