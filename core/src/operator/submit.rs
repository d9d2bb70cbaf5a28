//! Asking to be let in, and waiting for the decision over lost connections: the same request from a
//! new connection takes the place of the one before, since it shows the same token.

use std::time::Duration;

use serde_json::{Value, json};

use super::link::{Answer, Failed, Link, News};
use crate::client::{Auth, ConnectOptions, Connection, Identity};
use crate::{Error, ErrorKind};

const SUBMIT: &str = "AUTHORIZATION_REQUEST";
/// Pauses between tries while a decision is waited for.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Where, and how patiently.
pub(super) struct Way<'a> {
    pub(super) options: &'a ConnectOptions,
    pub(super) timeout: Duration,
}

/// Submits a request; without `wait` the answer is that it is pending. `pending` is told the id of the
/// request whenever the broker has taken it.
pub(super) async fn submit(
    way: &Way<'_>,
    body: &Value,
    wait: Option<Duration>,
    pending: &mut (dyn FnMut(&str) + Send),
) -> Answer {
    let Some(wait) = wait else {
        let link = Link::open(way.options, way.timeout).await?;
        let answer = link.ask(SUBMIT, body).await;
        link.close().await;
        return answer;
    };
    let mut asked = Asked::default();
    let decided = tokio::time::timeout(wait, decision(way, body, &mut asked, pending)).await;
    match decided {
        Ok(decided) => decided,
        Err(_) if asked.pending.is_null() => Err(Failed::Unreachable(Error::new(
            ErrorKind::Timeout,
            "the request was not taken in time",
        ))),
        Err(_) => Err(Failed::Late(json!({
            "ok": false, "code": ErrorKind::Timeout.number(), "error": ErrorKind::Timeout.code(),
            "message": "nobody has decided in time; the request still waits, and its token counts once it is approved",
            "status": "pending", "request_id": asked.id(),
        }))),
    }
}

async fn decision(
    way: &Way<'_>,
    body: &Value,
    asked: &mut Asked,
    pending: &mut (dyn FnMut(&str) + Send),
) -> Answer {
    let mut pause = FIRST_PAUSE;
    loop {
        match once(way, body, asked, pending).await {
            Ok(Some(decided)) => return Ok(decided),
            Ok(None) => pause = FIRST_PAUSE,
            // It was approved while nobody was told: its token is one by now.
            Err(failed)
                if asked.was_lost && failed.code() == Some(ErrorKind::TokenExists.code()) =>
            {
                return approved(way, body, &asked.pending).await;
            }
            Err(Failed::Unreachable(_)) if asked.was_reached => {}
            Err(failed) => return Err(failed),
        }
        asked.was_lost = true;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How far asking has come.
#[derive(Default)]
struct Asked {
    /// There is a broker: a lost connection is no reason to give up.
    was_reached: bool,
    /// A connection was lost behind a request that may have been taken.
    was_lost: bool,
    /// What the broker said of the request last; null: nothing.
    pending: Value,
}

impl Asked {
    fn id(&self) -> &str {
        self.pending["request_id"].as_str().unwrap_or("?")
    }
}

/// One connection: the decision, or none when it was lost.
async fn once(
    way: &Way<'_>,
    body: &Value,
    asked: &mut Asked,
    pending: &mut (dyn FnMut(&str) + Send),
) -> Answer<Option<Value>> {
    let link = Link::open(way.options, way.timeout).await?;
    asked.was_reached = true;
    let answer = match link.ask(SUBMIT, body).await {
        Ok(answer) => answer,
        Err(failed) => {
            link.close().await;
            return Err(failed);
        }
    };
    asked.pending = answer;
    pending(asked.id());
    let news = link.news().await;
    link.close().await;
    match news {
        News::Lost => Ok(None),
        News::Approved(told) => Ok(Some(merged(
            json!({ "ok": true, "status": "approved" }),
            told,
        ))),
        News::Rejected(told) => Err(Failed::Refused(merged(
            json!({ "ok": false, "code": 403, "error": "forbidden", "status": "rejected",
                    "message": "the request was rejected" }),
            told,
        ))),
    }
}

/// The realm and the role of a token that turned out to be one.
async fn approved(way: &Way<'_>, body: &Value, pending: &Value) -> Answer {
    let options = ConnectOptions {
        once: true,
        connect_timeout: Some(way.timeout),
        auth: Some(Auth {
            token: body["client_token"].as_str().map(ToOwned::to_owned),
            ..Auth::default()
        }),
        ..way.options.clone()
    };
    let greeting = std::sync::Arc::new(Greeting::default());
    let connection = Connection::open(options, Identity::default(), greeting.clone());
    connection.ready().await.map_err(Failed::Unreachable)?;
    let principal = greeting.take();
    if let Err(error) = connection.close(way.timeout).await {
        tracing::debug!(%error, "the connection did not end in time");
    }
    let told = json!({ "ok": true, "status": "approved", "request_id": pending["request_id"] });
    Ok(merged(told, principal))
}

/// Keeps what AUTH_OK says.
#[derive(Default)]
struct Greeting(parking_lot::Mutex<Value>);

impl Greeting {
    fn take(&self) -> Value {
        std::mem::take(&mut self.0.lock())
    }
}

impl crate::client::Sink for Greeting {
    fn delivery(&self, _: u32, _: crate::client::Delivery<'_>) {}

    fn batch_end(&self) {}

    fn event(&self, event: crate::client::ClientEvent<'_>) {
        if let crate::client::ClientEvent::Connected {
            auth: Some(auth), ..
        } = event
        {
            *self.0.lock() = serde_json::from_str(auth).unwrap_or_default();
        }
    }
}

/// The members of both; those of `under` give way.
fn merged(mut over: Value, under: Value) -> Value {
    if let (Value::Object(over), Value::Object(under)) = (&mut over, under) {
        for (name, value) in under {
            over.entry(name).or_insert(value);
        }
    }
    over
}

/// A wait that makes no sense.
pub(super) fn check_wait(wait: Option<Duration>) -> Result<(), Error> {
    match wait.is_some_and(|wait| wait.is_zero()) {
        true => Err(super::secrets::usage("--wait must be more than nothing")),
        false => Ok(()),
    }
}
