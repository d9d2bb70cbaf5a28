//! A call to a store that is under way. Called by every store and by whoever waits for one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Result;

/// A call under way; await it for the answer.
///
/// A store that answers at once (memory) pays no allocation for it, and a caller may
/// [`take`](Pending::take_ready) such an answer without polling. Dropping it does not undo the
/// call. Like any future it gives its answer once; polled again it waits for ever.
#[must_use = "the answer may be a refusal"]
pub enum Pending<T> {
    /// The answer, until it is taken.
    Ready(Option<Result<T>>),
    /// It will come.
    Waiting(Pin<Box<dyn Future<Output = Result<T>> + Send>>),
}

impl<T> Pending<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T>) -> Self {
        Self::Ready(Some(answer))
    }

    /// An answer that comes with `future`. The call itself must have taken its place already: the
    /// future only waits.
    pub fn waiting(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self::Waiting(Box::pin(future))
    }

    /// Takes the answer if it is there, without polling.
    pub fn take_ready(&mut self) -> Option<Result<T>> {
        match self {
            Self::Ready(answer) => answer.take(),
            Self::Waiting(_) => None,
        }
    }
}

// Nothing in it is ever pinned in place: the future has a box of its own.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut *self {
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(future) => future.as_mut().poll(context),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Waiting(_) => f.write_str("Waiting"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_there_is_taken_once_without_polling() {
        let mut pending = Pending::ready(Ok(7));
        assert_eq!(pending.take_ready(), Some(Ok(7)));
        assert_eq!(pending.take_ready(), None);
        assert_eq!(Pending::ready(Ok(8)).await, Ok(8));
    }

    #[tokio::test]
    async fn an_answer_that_comes_later_is_awaited() {
        let mut pending = Pending::waiting(async { Ok(9) });
        assert_eq!(pending.take_ready(), None);
        assert_eq!(pending.await, Ok(9));
    }
}
