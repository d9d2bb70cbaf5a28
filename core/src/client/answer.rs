//! An answer that comes exactly once: awaited, or handed to a callback.
//!
//! Knows nothing of what is asked. A [`Settle`] that is dropped settles `disconnected`, so nobody
//! waits for ever (P2). Called by the connection; users hold the [`Answer`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::{Error, ErrorKind, Result};

type Callback<T> = Box<dyn FnOnce(Result<T>) + Send>;

enum State<T> {
    Open(Option<Waker>),
    Calling(Callback<T>),
    Settled(Result<T>),
    Taken,
}

/// What the server will say; a future that ends once.
///
/// Dropping it is fine: the request goes on without a listener.
pub struct Answer<T>(Arc<Mutex<State<T>>>);

/// The other end of an [`Answer`].
pub struct Settle<T>(Option<Target<T>>);

enum Target<T> {
    Answer(Arc<Mutex<State<T>>>),
    Callback(Callback<T>),
}

impl<T: Send + 'static> Answer<T> {
    /// An answer and its other end.
    pub fn pair() -> (Settle<T>, Self) {
        let state = Arc::new(Mutex::new(State::Open(None)));
        (Settle(Some(Target::Answer(state.clone()))), Self(state))
    }

    /// An answer that is already there.
    pub fn settled(result: Result<T>) -> Self {
        Self(Arc::new(Mutex::new(State::Settled(result))))
    }

    /// Hands the answer to `callback`: at once on this thread if it is there, else on the
    /// connection's task, which it must not block.
    pub fn on(self, callback: impl FnOnce(Result<T>) + Send + 'static) {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Settled(result) => {
                drop(state);
                callback(result);
            }
            _ => *state = State::Calling(Box::new(callback)),
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Settled(result) => Poll::Ready(result),
            _ => {
                *state = State::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

impl<T> Settle<T> {
    /// An end that calls `callback`, on whichever thread settles it.
    pub fn callback(callback: impl FnOnce(Result<T>) + Send + 'static) -> Self {
        Self(Some(Target::Callback(Box::new(callback))))
    }

    /// Says the answer.
    pub fn settle(mut self, result: Result<T>) {
        if let Some(target) = self.0.take() {
            target.settle(result);
        }
    }
}

impl<T> Target<T> {
    fn settle(self, result: Result<T>) {
        let state = match self {
            Self::Callback(callback) => return callback(result),
            Self::Answer(state) => state,
        };
        let mut state = state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Calling(callback) => {
                drop(state);
                callback(result);
            }
            State::Open(waker) => {
                *state = State::Settled(result);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Settled(_) | State::Taken => {}
        }
    }
}

impl<T> Drop for Settle<T> {
    fn drop(&mut self) {
        if let Some(target) = self.0.take() {
            target.settle(Err(closed()));
        }
    }
}

impl<T> fmt::Debug for Settle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settle")
    }
}

/// What everything is answered that is still open when a connection closes.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Disconnected, "the connection is closed")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_callback_gets_the_answer_whichever_comes_first() {
        for callback_first in [true, false] {
            let (tell, told) = mpsc::channel();
            let (settle, answer) = Answer::pair();
            let listen = move |result| tell.send(result).unwrap();
            if callback_first {
                answer.on(listen);
                settle.settle(Ok(7));
            } else {
                settle.settle(Ok(7));
                answer.on(listen);
            }
            assert_eq!(told.try_recv(), Ok(Ok(7)));
            assert!(told.recv().is_err(), "settled twice");
        }
    }

    #[tokio::test]
    async fn a_dropped_end_settles_disconnected() {
        let (settle, answer) = Answer::<()>::pair();
        let waiting = tokio::spawn(answer);
        drop(settle);
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
    }

    #[tokio::test]
    async fn an_answer_can_be_awaited_before_and_after_it_came() {
        let (settle, answer) = Answer::pair();
        let waiting = tokio::spawn(answer);
        tokio::task::yield_now().await;
        settle.settle(Ok("now"));
        assert_eq!(waiting.await.unwrap(), Ok("now"));
        assert_eq!(Answer::settled(Ok("before")).await, Ok("before"));
    }
}
