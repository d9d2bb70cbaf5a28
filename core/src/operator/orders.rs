//! The command line → what is sent to the broker, how its answer is shown, and what must be confirmed.
//!
//! Every body is read by [`Command::parse`] before it leaves, so that a wrong call ends here. Knows no
//! connection.

mod credentials;
mod realms;
mod rest;

use std::time::Duration;

use serde_json::{Map, Value};

use super::args::{Area, Cli};
use super::console::Console;
use super::secrets::{Given, Source, prompt, usage};
use super::variables::Variables;
use crate::admin::Command;
use crate::model::duration_from_text;
use crate::{ErrorKind, Result};

/// Members of a body; an absent one is left out.
type Members = Map<String, Value>;

/// What is to be done, in order; the first no ends it.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) danger: Option<Danger>,
}

/// One message to the broker.
pub(super) struct Step {
    pub(super) action: Act,
    pub(super) body: Members,
    pub(super) view: View,
    /// Secrets that were minted for it, by name: shown when the broker has taken them.
    pub(super) minted: Vec<(&'static str, String)>,
}

/// What kind of message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// A signed management command.
    Command,
    /// The command that changes the store, signed.
    Move,
    /// The oldest authorization request, signed.
    Next,
    /// A decision, signed.
    Decide,
    /// A request of a client, and how long its decision is waited for.
    Submit(Option<Duration>),
    /// Whether what signs is right: of a realm if a manager key signs.
    Verify,
}

/// What cannot be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Danger {
    /// A yes is enough.
    Confirm(String),
    /// This name must be typed again.
    Retype(String, String),
}

/// How people are shown an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    /// As a sentence, with the numbers of the answer behind it.
    Said(String),
    /// A change of stores: the new one's name.
    Moved(String),
    /// Rows of a list that the answer holds.
    Rows {
        member: &'static str,
        columns: &'static [&'static str],
    },
    /// Rows out of the settings, of one realm if one is named.
    Listed(List, Option<String>),
    /// One member, outlined; the whole answer without a name.
    Outline(Option<&'static str>),
    /// An authorization request.
    Request,
    /// What verifying found out.
    Verified,
}

/// What the settings list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Tokens,
    Realms,
    ManagementTokens,
    Persistence,
}

/// Who may be asked while a plan is made.
pub(super) struct Desk<'a> {
    pub(super) variables: &'a Variables,
    pub(super) console: &'a mut dyn Console,
}

impl Desk<'_> {
    /// What was given, or what somebody says when asked.
    pub(super) fn needed(&mut self, given: Option<String>, what: &str) -> Result<String> {
        if let Some(given) = given {
            return Ok(given);
        }
        if !self.console.is_attended() {
            return Err(usage(format!("{what} must be given")));
        }
        match self.console.ask(&format!("{what}: ")) {
            Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
            Ok(_) => Err(usage(format!("{what} must be given"))),
            Err(error) => Err(usage(format!("{what} could not be read: {error}"))),
        }
    }

    pub(super) fn secret(&mut self, flag: &str, source: &str, what: &str) -> Result<Option<Given>> {
        Source::parse(flag, source)?.read(what, self.variables, self.console)
    }

    /// A secret that cannot be none.
    pub(super) fn some_secret(&mut self, flag: &str, source: &str, what: &str) -> Result<Given> {
        let given = self.secret(flag, source, what)?;
        given.ok_or_else(|| usage(format!("--{flag} cannot be none here")))
    }

    /// The address of a store: in clear only without a password in it.
    pub(super) fn address(&mut self, flag: &str, text: &str) -> Result<String> {
        let is_source = ["env:", "file:"].iter().any(|word| text.starts_with(word));
        if is_source || text == "prompt" {
            return Ok(self.some_secret(flag, text, "address")?.text);
        }
        match text.contains('@') {
            true => Err(usage(format!(
                "--{flag} holds a password, which others could see here: give it as env:NAME, file:PATH or prompt"
            ))),
            false => Ok(text.to_owned()),
        }
    }
}

/// The members that are there.
pub(super) fn members<const N: usize>(pairs: [(&str, Value); N]) -> Members {
    let there = pairs.into_iter().filter(|(_, value)| !value.is_null());
    there
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// What was given as JSON.
pub(super) fn json(flag: &str, text: Option<&str>) -> Result<Value> {
    let Some(text) = text else {
        return Ok(Value::Null);
    };
    let wrong = |error| usage(format!("--{flag} must be JSON: {error}"));
    serde_json::from_str(text).map_err(wrong)
}

impl Step {
    pub(super) fn new(action: Act, body: Members, view: View) -> Self {
        Self {
            action,
            body,
            view,
            minted: Vec::new(),
        }
    }

    /// A management command, read as the broker will read it.
    pub(super) fn command(name: &str, mut body: Members, view: View) -> Result<Self> {
        body.insert("command".to_owned(), name.into());
        let text = Value::Object(body.clone()).to_string();
        match Command::parse(&text) {
            // The broker will say so; it is no matter of the command line.
            Err(error) if error.kind() != ErrorKind::DeadLetterUnknown => {
                return Err(usage(error.message()));
            }
            _ => {}
        }
        Ok(Self::new(Act::Command, body, view))
    }

    /// Puts a secret into the body, and remembers it if it was minted.
    pub(super) fn carry(&mut self, name: &'static str, given: Given) {
        if given.is_minted {
            self.minted.push((name, given.text.clone()));
        }
        self.body.insert(name.to_owned(), given.text.into());
    }
}

impl Plan {
    /// Reads a command line into a plan; asks for what is missing.
    pub(super) fn read(cli: Cli, desk: &mut Desk<'_>) -> Result<Self> {
        match cli.area {
            Area::Realms(realms) => realms::read(realms, desk),
            Area::Tokens(tokens) => credentials::tokens(tokens, desk),
            Area::ManagementTokens(tokens) => credentials::management_tokens(tokens, desk),
            Area::External(external) => credentials::external(external, desk),
            Area::Requests(requests) => credentials::requests(requests, desk),
            Area::Dlq(dlq) => rest::dlq(dlq),
            Area::Persistence(persistence) => rest::persistence(persistence, desk),
            Area::Sessions(sessions) => rest::sessions(sessions),
            Area::Queues(queues) => rest::queues(queues),
            Area::Settings(settings) => rest::settings(&settings),
            Area::Auth(switch) => rest::switch(&switch),
            Area::Stats => {
                Step::command("stats", Members::new(), View::Outline(Some("stats"))).map(Self::from)
            }
            Area::Verify { realm } => {
                let body = members([("realm", realm.into())]);
                Ok(Step::new(Act::Verify, body, View::Verified).into())
            }
        }
    }

    fn dangerous(mut self, danger: Danger) -> Self {
        self.danger = Some(danger);
        self
    }
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self {
            steps: vec![step],
            danger: None,
        }
    }
}

/// A duration on the command line.
pub(super) fn duration(flag: &str, text: &str) -> Result<Duration> {
    duration_from_text(flag, text).map_err(|error| usage(error.message()))
}

/// A prompt for the secret that signs.
pub(super) fn ask_for_token(console: &mut dyn Console) -> Result<String> {
    prompt("administrator's token", console)
}
