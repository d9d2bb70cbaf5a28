//! `restante admin realms …`: one command for each setting that is said.

use serde_json::Value;

use super::super::args::{Of, Realms};
use super::super::secrets::usage;
use super::{Danger, Desk, List, Members, Plan, Step, View, members};
use crate::Result;

pub(super) fn read(realms: Realms, desk: &mut Desk<'_>) -> Result<Plan> {
    match realms {
        Realms::Add { realm, of } => add(&desk.needed(realm, "realm")?, &of, desk),
        Realms::Set {
            realm,
            of,
            permanent,
            create,
        } => {
            let realm = desk.needed(realm, "realm")?;
            let mut plan = Plan {
                steps: Vec::new(),
                danger: None,
            };
            let set = Set {
                realm: &realm,
                create,
            };
            set.flags(&of, &mut plan.steps)?;
            set.keys(&of, desk, &mut plan.steps)?;
            set.lifetime(&of, permanent, &mut plan.steps)?;
            match plan.steps.is_empty() {
                true => Err(usage(
                    "nothing to set: see restante admin realms set --help",
                )),
                false => Ok(plan),
            }
        }
        Realms::Rename { from, to } => {
            let said = View::Said(format!("realm {from} is {to} now"));
            let body = members([("from", from.into()), ("to", to.into())]);
            Step::command("rename_realm", body, said).map(Plan::from)
        }
        Realms::Remove { realm } => {
            let realm = desk.needed(realm, "realm")?;
            let said = View::Said(format!("realm {realm} is gone"));
            let body = members([("realm", realm.as_str().into())]);
            let plan: Plan = Step::command("remove_realm", body, said)?.into();
            let question = format!(
                "This ends realm {realm} with its tokens, sessions and messages. Type its name: "
            );
            Ok(plan.dangerous(Danger::Retype(question, realm)))
        }
        Realms::List => {
            Step::command("get", Members::new(), View::Listed(List::Realms, None)).map(Plan::from)
        }
    }
}

fn add(realm: &str, of: &Of, desk: &mut Desk<'_>) -> Result<Plan> {
    let body = members([
        ("realm", realm.into()),
        ("required", of.required.into()),
        ("require_key", of.require_key.into()),
        ("require_acceptance", of.acceptance.into()),
        ("allow_anonymous", of.anonymous.into()),
        ("e2ee", of.e2ee.as_deref().into()),
        ("ephemeral", of.ephemeral.then_some(true).into()),
        ("ttl", of.ttl.as_deref().into()),
    ]);
    if let Some(policy) = of
        .e2ee
        .as_deref()
        .filter(|policy| !POLICIES.contains(policy))
    {
        return Err(usage(format!(
            "--e2ee {policy}: there are off, opportunistic and required"
        )));
    }
    let said = View::Said(format!("realm {realm} added"));
    let mut step = Step::command("add_realm", body, said)?;
    for (name, flag, source) in of.secrets() {
        if let Some(source) = source
            && let Some(given) = desk.secret(flag, source, &format!("{flag} of {realm}"))?
        {
            step.carry(name, given);
        }
    }
    Ok(step.into())
}

const POLICIES: [&str; 3] = ["off", "opportunistic", "required"];

impl Of {
    /// Member, flag, source.
    fn secrets(&self) -> [(&'static str, &'static str, Option<&str>); 3] {
        [
            ("key", "key", self.key.as_deref()),
            ("manager_key", "manager-key", self.manager_key.as_deref()),
            ("jwt_key", "jwt-key", self.jwt_key.as_deref()),
        ]
    }
}

/// `realms set` of one realm.
struct Set<'a> {
    realm: &'a str,
    create: bool,
}

impl Set<'_> {
    fn step(&self, command: &str, more: (&str, Value), what: String) -> Result<Step> {
        let body = members([
            ("realm", self.realm.into()),
            ("create", self.create.then_some(true).into()),
            more,
        ]);
        Step::command(
            command,
            body,
            View::Said(format!("realm {}: {what}", self.realm)),
        )
    }

    fn flags(&self, of: &Of, steps: &mut Vec<Step>) -> Result<()> {
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        let flags = [
            (
                "set_realm_auth",
                "required",
                of.required,
                "a credential is needed",
            ),
            (
                "set_realm_acceptance",
                "required",
                of.acceptance,
                "producers must be accepted",
            ),
            (
                "set_realm_anonymous",
                "allow_anonymous",
                of.anonymous,
                "clients may go without a name",
            ),
        ];
        for (command, member, flag, what) in flags {
            if let Some(flag) = flag {
                let what = format!("{what}: {}", yes(flag));
                steps.push(self.step(command, (member, flag.into()), what)?);
            }
        }
        if let Some(policy) = of.e2ee.as_deref() {
            let what = format!("encrypted bodies: {policy}");
            steps.push(self.step("set_realm_e2ee", ("e2ee", policy.into()), what)?);
        }
        Ok(())
    }

    fn keys(&self, of: &Of, desk: &mut Desk<'_>, steps: &mut Vec<Step>) -> Result<()> {
        for (name, flag, source) in of.secrets() {
            let Some(source) = source else { continue };
            let given = desk.secret(flag, source, &format!("{flag} of {}", self.realm))?;
            let what = match given {
                Some(_) => format!("{} set", name.replace('_', " ")),
                None => format!("{} cleared", name.replace('_', " ")),
            };
            let needs = match name {
                "key" => of.require_key.into(),
                _ => Value::Null,
            };
            let command = format!("set_realm_{name}");
            let mut step = self.step(&command, ("require_key", needs), what)?;
            if let Some(given) = given {
                step.carry(name, given);
            }
            steps.push(step);
        }
        Ok(())
    }

    fn lifetime(&self, of: &Of, permanent: bool, steps: &mut Vec<Step>) -> Result<()> {
        if permanent {
            let what = "it does not end by itself".to_owned();
            steps.push(self.step("set_realm_lifetime", ("ephemeral", false.into()), what)?);
        } else if let Some(ttl) = of.ttl.as_deref() {
            let what = format!("it ends in {ttl}");
            steps.push(self.step("set_realm_lifetime", ("ttl", ttl.into()), what)?);
        } else if of.ephemeral {
            let what = "it ends by itself".to_owned();
            steps.push(self.step("set_realm_lifetime", ("ephemeral", true.into()), what)?);
        }
        Ok(())
    }
}
