//! The embedding program's own answer to a token: a port that the addon implements over a function of the
//! user's. Where there is one, nobody else is asked (admin.md §2.3). Bounded in number and time. Knows no
//! JavaScript.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::Claims;
use crate::clock::{Clock, Timestamp};

/// How long a validator may take, waiting for its turn included.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How many calls are under way at once.
pub(super) const AT_ONCE: usize = 64;

/// Who says whose token it is.
pub trait Validator: Send + Sync + 'static {
    /// Whose token it is; `None`: nobody's. A failure is a no. Dropped after 5 s. `now` is for
    /// [`Claims::from_json`].
    fn validate(&self, token: &str, now: Timestamp) -> Answer;
}

/// What a [`Validator`] says, once it has found out.
pub type Answer = Pin<Box<dyn Future<Output = Option<Claims>> + Send>>;

/// A validator and the calls to it.
#[derive(Clone)]
pub(super) struct Program {
    validator: Arc<dyn Validator>,
    turns: Arc<Semaphore>,
}

impl Program {
    pub(super) fn new(validator: Arc<dyn Validator>) -> Self {
        Self {
            validator,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Asks; no answer in time is a no.
    pub(super) async fn ask(self, token: String, clock: Arc<dyn Clock>) -> Option<Claims> {
        let deadline = clock.elapsed().saturating_add(PATIENCE);
        let answer = async {
            let _turn = self.turns.acquire().await.ok()?;
            self.validator.validate(&token, clock.now()).await
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = clock.sleep_until(deadline) => {
                tracing::warn!("the program's validator did not answer within 5 s");
                None
            }
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Program")
    }
}
