//! Asks external validators by HTTP (admin.md §2.4): one POST, no redirect, no proxy, 5 s, 64 KiB, 64
//! calls at once for each address. A no is remembered for 5 s and a yes for at most 60 s, by the hash of
//! what was asked. Knows no session; what may be said is judged by `identify`.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use tokio::sync::{OnceCell, Semaphore};

use super::TokenHash;
use super::claims::Claims;
use super::generations::Generations;
use super::outside::{Asked, ValidatorUrl};
use super::validator::{AT_ONCE, PATIENCE};
use crate::clock::{Clock, Elapsed};
use crate::model::RealmId;

const MAX_REPLY: usize = 64 << 10;
const REMEMBER_NO: Duration = Duration::from_secs(5);
const REMEMBER_YES: Duration = Duration::from_secs(60);
/// Answers remembered: twice as many at most.
const ANSWERS: usize = 4096;
/// Addresses with lines of their own before those that nobody waits in are forgotten.
const LINES: usize = 256;

struct Said {
    claims: Option<Claims>,
    until: Elapsed,
}

/// See the module.
pub(super) struct External {
    client: OnceCell<reqwest::Client>,
    lines: Mutex<HashMap<ValidatorUrl, Arc<Semaphore>>>,
    said: Mutex<Generations<TokenHash, Said>>,
}

#[derive(Serialize)]
struct Question<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    realm: Option<&'a str>,
}

impl External {
    pub(super) fn new() -> Self {
        Self {
            client: OnceCell::new(),
            lines: Mutex::new(HashMap::new()),
            said: Mutex::new(Generations::new(ANSWERS)),
        }
    }

    /// Whose token it is; `None`: nobody's, or nobody said so in time.
    pub(super) async fn ask(
        &self,
        asked: &Asked,
        token: &str,
        hint: Option<&RealmId>,
        clock: &dyn Clock,
    ) -> Option<Claims> {
        let hint = hint.map(RealmId::as_str);
        let key = format!(
            "{}\n{}\n{token}",
            asked.url.as_str(),
            hint.unwrap_or_default()
        );
        let key = TokenHash::of(&key);
        if let Some(said) = self.said.lock().get(&key)
            && said.until > clock.elapsed()
        {
            return said.claims.clone();
        }
        let deadline = clock.elapsed().saturating_add(PATIENCE);
        let claims = tokio::select! {
            biased;
            claims = self.call(asked, Question { token, realm: hint }, clock) => claims,
            () = clock.sleep_until(deadline) => {
                tracing::warn!("the validator {} did not answer within 5 s", asked.url.shown());
                None
            }
        };
        let remember = if claims.is_some() {
            REMEMBER_YES
        } else {
            REMEMBER_NO
        };
        let said = Said {
            claims: claims.clone(),
            until: clock.elapsed().saturating_add(remember),
        };
        self.said.lock().insert(key, said);
        claims
    }

    /// Forgets every answer: the settings have changed.
    pub(super) fn forget(&self) {
        *self.said.lock() = Generations::new(ANSWERS);
    }

    async fn call(
        &self,
        asked: &Asked,
        question: Question<'_>,
        clock: &dyn Clock,
    ) -> Option<Claims> {
        let line = self.line(&asked.url);
        let _turn = line.acquire().await.ok()?;
        let warn = |error: reqwest::Error| {
            // Without the address: it may hold what is nobody's business.
            let error = error.without_url();
            let first: &dyn StdError = &error;
            let reasons = iter::successors(Some(first), |&error| error.source());
            let reasons: Vec<String> = reasons.map(ToString::to_string).collect();
            let (url, why) = (asked.url.shown(), reasons.join(": "));
            tracing::warn!("the validator {url} was not reached: {why}");
        };
        let client = self.client.get_or_try_init(client).await.map_err(|error| {
            tracing::warn!("validators cannot be asked: {error}");
        });
        let body = serde_json::to_vec(&question).ok()?;
        let mut request = client
            .ok()?
            .post(asked.url.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(secret) = &asked.secret {
            let value = HeaderValue::from_bytes(secret.expose().as_bytes());
            let mut value = value
                .inspect_err(|_| {
                    let url = asked.url.shown();
                    tracing::warn!("the secret for the validator {url} cannot stand in a header");
                })
                .ok()?;
            value.set_sensitive(true);
            request = request.header("x-mq-auth-secret", value);
        }
        let mut response = request.send().await.map_err(warn).ok()?;
        let status = response.status();
        if status.is_server_error() {
            let url = asked.url.shown();
            tracing::warn!("the validator {url} answered {status}, which counts as no");
        }
        if !status.is_success() {
            return None;
        }
        let mut reply = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(warn).ok()? {
            if reply.len() + chunk.len() > MAX_REPLY {
                return None;
            }
            reply.extend_from_slice(&chunk);
        }
        Claims::from_json(&reply, clock.now())
    }

    fn line(&self, url: &ValidatorUrl) -> Arc<Semaphore> {
        let mut lines = self.lines.lock();
        if lines.len() >= LINES && !lines.contains_key(url) {
            lines.retain(|_, line| Arc::strong_count(line) > 1);
        }
        let line = lines.entry(url.clone());
        let line = line.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
        line.clone()
    }
}

/// Reads the machine's certificates, which blocks.
async fn client() -> Result<reqwest::Client, String> {
    let build = || {
        // The one that is in the tree already; whoever installed one first keeps it.
        let ring = tokio_rustls::rustls::crypto::ring::default_provider();
        let _ = ring.install_default();
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())
    };
    let built = tokio::task::spawn_blocking(build).await;
    built.map_err(|error| error.to_string())?
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("External")
    }
}
