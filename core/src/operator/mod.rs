//! `restante admin`: orders a running broker about by signed commands, for people and for scripts.
//!
//! One implementation for the cargo binary and for the package's command, which hand it their words.
//! It speaks through the client like everybody else and holds no right of its own. Knows nothing of
//! how a broker does what it is ordered.
//!
//! ```text
//!  args      the words of the command line
//!  orders    words → what is sent, how it is shown, what must be confirmed
//!  secrets   where secrets come from: environment, file, prompt, chance
//!  link      one connection; proof signs; submit waits for a decision
//!  show      answers as JSON or as tables
//!  console   where a person reads and answers
//! ```

mod args;
mod console;
mod link;
mod orders;
mod proof;
mod secrets;
mod show;
mod submit;
mod table;
#[cfg(test)]
mod tests;
mod variables;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind as Wrong;
use serde_json::{Value, json};

pub use self::console::{Console, Terminal};
pub use self::variables::Variables;

use self::args::{Cli, Place};
use self::link::{Answer, Failed, Link};
use self::orders::{Act, Danger, Desk, Plan, Step};
use self::proof::Signer;
use crate::Result;
use crate::auth::Action;
use crate::client::ConnectOptions;
use crate::tls::{ClientTls, Pem};

/// How long connecting and each answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a command ended; its number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ended {
    /// Done.
    Done = 0,
    /// Wrong usage, or not confirmed; nothing was sent.
    Usage = 1,
    /// The broker said no.
    Refused = 2,
    /// No broker was reached, or nobody decided in time.
    Unreachable = 3,
}

impl Ended {
    /// The exit code of the process.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Does what `words` say (without `restante admin`): results to the console's output, everything else
/// to its notes. No secret is printed but one that was minted, once.
pub async fn run(
    words: impl IntoIterator<Item = String> + Send,
    variables: Variables,
    console: &mut dyn Console,
) -> Ended {
    let words = std::iter::once("restante admin".to_owned()).chain(words);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(wrong) => return misread(&wrong, console),
    };
    let as_json = cli.place.json;
    match perform(cli, variables, console).await {
        Ok(()) => Ended::Done,
        Err(Failed::Usage(error)) => {
            console.note(&table::tame(error.message()));
            Ended::Usage
        }
        Err(Failed::Unreachable(error)) => {
            if as_json {
                let told =
                    json!({ "ok": false, "error": error.code(), "message": error.message() });
                tell(console, &told.to_string());
            }
            let text = format!(
                "no broker was reached: {} ({})",
                error.message(),
                error.code()
            );
            console.note(&table::tame(&text));
            Ended::Unreachable
        }
        Err(Failed::Late(told)) => {
            let message = told["message"].as_str().unwrap_or_default();
            console.note(&table::tame(message));
            Ended::Unreachable
        }
        Err(Failed::Refused(answer)) => {
            if as_json {
                tell(console, &answer.to_string());
            }
            console.note(&show::refusal(&answer));
            Ended::Refused
        }
    }
}

fn tell(console: &mut dyn Console, line: &str) {
    if let Err(error) = console.say(line) {
        console.note(&format!("the output cannot be written: {error}"));
    }
}

/// Help is a result; all else is wrong usage.
fn misread(wrong: &clap::Error, console: &mut dyn Console) -> Ended {
    let text = wrong.to_string();
    if wrong.kind() == Wrong::DisplayHelp {
        tell(console, text.trim_end());
        return Ended::Done;
    }
    console.note(text.trim_end());
    Ended::Usage
}

async fn perform(cli: Cli, variables: Variables, console: &mut dyn Console) -> Answer<()> {
    let variables = variables
        .with_file(cli.place.env_file.as_deref())
        .map_err(Failed::Usage)?;
    let options = place(&cli.place, &variables).map_err(Failed::Usage)?;
    let timeout = match &cli.place.timeout {
        Some(text) => orders::duration("timeout", text).map_err(Failed::Usage)?,
        None => PATIENCE,
    };
    let signing = signing(&cli.place);
    let (as_json, is_sure) = (cli.place.json, cli.place.yes);
    let mut desk = Desk {
        variables: &variables,
        console,
    };
    let mut plan = Plan::read(cli, &mut desk).map_err(Failed::Usage)?;
    if let Some(danger) = plan.danger.as_ref().filter(|_| !is_sure) {
        confirm(danger, console).map_err(Failed::Usage)?;
    }
    if let [step] = &mut plan.steps[..]
        && let Act::Submit(wait) = step.action
    {
        let way = submit::Way {
            options: &options,
            timeout,
        };
        submit::check_wait(wait).map_err(Failed::Usage)?;
        return ask_to_be_let_in(step, &way, wait, as_json, console).await;
    }
    let signer = signer(&signing, &variables, console).map_err(Failed::Usage)?;
    let link = Link::open(&options, timeout).await?;
    let done = all(&plan.steps, &link, &signer, as_json, console).await;
    link.close().await;
    done
}

/// The token that was minted here is told whatever comes of waiting: nobody else knows it, and the
/// request may be approved later.
async fn ask_to_be_let_in(
    step: &mut Step,
    way: &submit::Way<'_>,
    wait: Option<Duration>,
    as_json: bool,
    console: &mut dyn Console,
) -> Answer<()> {
    let body = Value::Object(step.body.clone());
    // A person may lose patience before the time is over.
    let mut minted = match wait.is_some() && !as_json {
        true => std::mem::take(&mut step.minted),
        false => Vec::new(),
    };
    let mut pending = |id: &str| {
        let text = format!("request {id} waits for a decision");
        console.note(&table::tame(&text));
        for (name, secret) in minted.drain(..) {
            tell(console, &show::once(name, &secret));
        }
    };
    let (mut answer, is_late) = match submit::submit(way, &body, wait, &mut pending).await {
        Ok(answer) => (answer, false),
        Err(Failed::Late(told)) => (told, true),
        Err(failed) => return Err(failed),
    };
    answer["client_id"] = body["client_id"].clone();
    if as_json || !is_late {
        put(step, &answer, as_json, console)?;
    }
    match is_late {
        true => Err(Failed::Late(answer)),
        false => Ok(()),
    }
}

async fn all(
    steps: &[Step],
    link: &Link,
    signer: &Signer,
    as_json: bool,
    console: &mut dyn Console,
) -> Answer<()> {
    for step in steps {
        let body = Value::Object(step.body.clone());
        let answer = match step.action {
            Act::Next => link.order(Action::Next, &body, signer).await?,
            Act::Decide => link.order(Action::Decide, &body, signer).await?,
            Act::Verify => verify(link, body, signer).await?,
            Act::Move => moved(link, &body, signer).await?,
            Act::Command | Act::Submit(_) => link.order(Action::Command, &body, signer).await?,
        };
        put(step, &answer, as_json, console)?;
    }
    Ok(())
}

/// A change of stores; what the old and the new one survive is `levels` in the answer.
async fn moved(link: &Link, body: &Value, signer: &Signer) -> Answer {
    let before = level(link, signer).await;
    let mut answer = link.order(Action::Command, body, signer).await?;
    answer["levels"] = json!({ "before": before, "after": level(link, signer).await });
    Ok(answer)
}

/// What the store in force survives; null if that is not told.
async fn level(link: &Link, signer: &Signer) -> Value {
    let stats = json!({ "command": "stats" });
    let told = link.order(Action::Command, &stats, signer).await;
    told.map(|told| told["stats"]["store"]["level"].clone())
        .unwrap_or_default()
}

/// Asks for something harmless that only the right secret gets; the secret itself stays here.
async fn verify(link: &Link, body: Value, signer: &Signer) -> Answer {
    if !signer.is_of_realm {
        link.order(Action::Command, &json!({ "command": "get" }), signer)
            .await?;
        return Ok(json!({ "ok": true, "realm": "*", "role": "admin" }));
    }
    if body["realm"].is_null() {
        return Err(Failed::Usage(secrets::usage(
            "a manager key is verified for its --realm",
        )));
    }
    link.order(Action::Next, &body, signer).await?;
    Ok(json!({ "ok": true, "realm": body["realm"], "role": "manager" }))
}

fn put(step: &Step, answer: &Value, as_json: bool, console: &mut dyn Console) -> Answer<()> {
    for line in show::answer(step, answer, as_json) {
        let said = console.say(&line);
        said.map_err(|error| {
            Failed::Usage(secrets::usage(format!(
                "the output cannot be written: {error}"
            )))
        })?;
    }
    Ok(())
}

/// Where to connect: flags, then the environment, then the usual place.
fn place(place: &Place, variables: &Variables) -> Result<ConnectOptions> {
    let said = |flag: &Option<String>, names: &[&str], usual: &str| {
        let flag = flag.as_deref().or_else(|| variables.first(names));
        flag.unwrap_or(usual).to_owned()
    };
    let port = match (
        place.port,
        variables.first(&["RESTANTE_PORT", "TYO_MQ_PORT"]),
    ) {
        (Some(port), _) => port,
        (None, Some(text)) => {
            let wrong = |_| secrets::usage("RESTANTE_PORT must be a port");
            text.parse().map_err(wrong)?
        }
        (None, None) => ConnectOptions::default().port,
    };
    let mut options = ConnectOptions {
        host: said(&place.host, &["RESTANTE_HOST", "TYO_MQ_HOST"], "localhost"),
        protocol: said(&place.protocol, &["RESTANTE_PROTOCOL"], "http"),
        port,
        ..ConnectOptions::default()
    };
    let ca = place
        .ca
        .clone()
        .or_else(|| variables.get("RESTANTE_CA").map(PathBuf::from));
    options.ca = ca.map(Pem::File);
    if !["http", "https"].contains(&&*options.protocol) {
        return Err(secrets::usage("the protocol must be http or https"));
    }
    if options.ca.is_some() {
        // What is wrong with the file is no matter of the broker.
        ClientTls::new(options.ca.as_ref())?;
    }
    if let Some(path) = &place.path {
        options.path.clone_from(path);
    }
    Ok(options)
}

/// What the command line says of the secret that signs.
#[derive(Debug)]
enum Signing {
    Token(Option<String>),
    TokenFile(PathBuf),
    ManagerKey(String),
    ManagerKeyFile(PathBuf),
}

fn signing(place: &Place) -> Signing {
    match (
        &place.token_file,
        &place.manager_key_env,
        &place.manager_key_file,
    ) {
        (Some(file), ..) => Signing::TokenFile(file.clone()),
        (_, Some(name), _) => Signing::ManagerKey(name.clone()),
        (.., Some(file)) => Signing::ManagerKeyFile(file.clone()),
        _ => Signing::Token(place.token_env.clone()),
    }
}

fn signer(signing: &Signing, variables: &Variables, console: &mut dyn Console) -> Result<Signer> {
    let named = |name: &str| {
        let text = variables.get(name).map(ToOwned::to_owned);
        text.ok_or_else(|| secrets::usage(format!("the variable {name} is not set")))
    };
    let (secret, is_of_realm) = match signing {
        Signing::TokenFile(file) => (secrets::from_file(file)?, false),
        Signing::ManagerKeyFile(file) => (secrets::from_file(file)?, true),
        Signing::ManagerKey(name) => (named(name)?, true),
        Signing::Token(Some(name)) => (named(name)?, false),
        Signing::Token(None) => match (variables.get(TOKEN), variables.get(MANAGER_KEY)) {
            (Some(token), _) => (token.to_owned(), false),
            (None, Some(key)) => (key.to_owned(), true),
            (None, None) if console.is_attended() => (orders::ask_for_token(console)?, false),
            (None, None) => {
                return Err(secrets::usage(format!(
                    "nothing to sign with: set {TOKEN} or {MANAGER_KEY}, or give --token-env or --token-file"
                )));
            }
        },
    };
    Ok(Signer {
        secret,
        is_of_realm,
    })
}

const TOKEN: &str = "RESTANTE_ADMIN_TOKEN";
const MANAGER_KEY: &str = "RESTANTE_REALM_MANAGER_KEY";

fn confirm(danger: &Danger, console: &mut dyn Console) -> Result<()> {
    if !console.is_attended() {
        return Err(secrets::usage(
            "there is no terminal to confirm at: give --yes",
        ));
    }
    let question = match danger {
        Danger::Confirm(question) | Danger::Retype(question, _) => question,
    };
    let said = console.ask(&table::tame(question)).map_err(|error| {
        let text = format!("the answer could not be read: {error}");
        secrets::usage(text)
    })?;
    let is_fine = match danger {
        Danger::Confirm(_) => matches!(said.trim(), "y" | "yes"),
        Danger::Retype(_, name) => said.trim() == name,
    };
    match is_fine {
        true => Ok(()),
        false => Err(secrets::usage("nothing was done")),
    }
}
