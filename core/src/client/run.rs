//! The task of a connection: connect, serve, pause, connect again; and keep the deadlines.
//!
//! Decides what ends a connection for good. The socket is the link's business.

use std::sync::Arc;
use std::time::Duration;

use super::answer::closed;
use super::backoff::Backoff;
use super::link::{Link, Lost};
use super::options::ConnectOptions;
use super::shared::Shared;
use super::sink::ClientEvent;
use crate::clock::{Clock, Elapsed};
use crate::{Error, ErrorKind};

/// Deadlines closer together than this are kept together.
const TICK: Duration = Duration::from_millis(20);

/// Runs until closed or down for good.
pub(super) async fn run(shared: Arc<Shared>) {
    let end = tokio::select! {
        end = connect_again_and_again(&shared) => end,
        end = give_up_connecting(&shared) => end,
        never = keep_deadlines(&shared) => match never {},
    };
    if let Some(error) = &end {
        shared.state.lock().shut(error.clone());
        shared.settle_ready(Err(error.clone()));
    }
    let outcomes = shared.state.lock().finish();
    shared.tell(outcomes);
    if let Some(error) = &end {
        shared.sink.event(ClientEvent::Down { error });
    }
    shared.settle_ready(Err(closed()));
    shared.sink.event(ClientEvent::Closed);
    shared.sink.batch_end();
    shared.ended.send_replace(true);
    shared.ring_idle();
}

/// The reason to stay down; none after a close.
async fn connect_again_and_again(shared: &Shared) -> Option<Error> {
    let mut backoff = Backoff::new(shared.fixed.options.reconnect);
    let mut closing = shared.closing.subscribe();
    let mut is_first = true;
    loop {
        let lost = serve(shared, is_first).await;
        let (outcomes, was_up) = shared.state.lock().link_down();
        shared.tell(outcomes);
        let reason = lost.error.message();
        if was_up {
            shared.sink.event(ClientEvent::Disconnected { reason });
        }
        shared.sink.batch_end();
        if shared.closing.borrow().is_some() {
            return None;
        }
        if lost.for_good || shared.fixed.options.once {
            return Some(lost.error);
        }
        is_first &= !was_up;
        let waiting = shared.outage.lock().failed(&lost.error, was_up, is_first);
        if waiting {
            let error = waits(&shared.fixed.options, &lost.error);
            shared.sink.event(ClientEvent::Waiting { error: &error });
            shared.sink.batch_end();
        }
        let pause = backoff.next(lost.lasted);
        tracing::debug!(reason, ?pause, "no connection");
        tokio::select! {
            _ = closing.wait_for(Option::is_some) => return None,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One link from its start to its end.
async fn serve(shared: &Shared, is_first: bool) -> Lost {
    let mut closing = shared.closing.subscribe();
    let opened = tokio::select! {
        opened = Link::open(shared, is_first) => opened,
        _ = closing.wait_for(Option::is_some) => return Lost::before(closed()),
    };
    match opened {
        Ok(link) => link.serve().await,
        Err(error) => Lost {
            for_good: matches!(error.kind(), ErrorKind::Config | ErrorKind::Unsupported),
            ..Lost::before(error)
        },
    }
}

/// Ends when `connect_timeout` is over and there was no connection yet.
async fn give_up_connecting(shared: &Shared) -> Option<Error> {
    let Some(timeout) = shared.fixed.options.connect_timeout else {
        return std::future::pending().await;
    };
    tokio::time::sleep(timeout).await;
    if shared.ready.borrow().is_some() {
        return std::future::pending().await;
    }
    let options = &shared.fixed.options;
    let why = match shared.outage.lock().last() {
        Some(error) => format!(": {}", error.message()),
        None => String::new(),
    };
    Some(Error::new(
        ErrorKind::Timeout,
        format!(
            "no connection to {}:{} within {timeout:?}{why}",
            options.host, options.port
        ),
    ))
}

/// The same error as one of a connection that goes on trying.
fn waits(options: &ConnectOptions, error: &Error) -> Error {
    let (host, port, why) = (&options.host, options.port, error.message());
    let text = format!("no connection to {host}:{port}, it is tried again: {why}");
    let told = Error::new(error.kind(), text);
    match error.retry_after() {
        Some(seconds) => told.retried_after(seconds),
        None => told,
    }
}

async fn keep_deadlines(shared: &Shared) -> std::convert::Infallible {
    loop {
        let deadline = shared.state.lock().deadline;
        let sleep = shared.clock.sleep_until(deadline.unwrap_or(Elapsed::MAX));
        tokio::select! {
            () = sleep => {}
            () = shared.timer.notified() => continue,
        }
        let outcomes = shared.state.lock().expire(shared.clock.elapsed());
        if shared.tell(outcomes) {
            shared.sink.batch_end();
        }
        // What was given up makes room for what waits.
        shared.wake.notify_one();
        tokio::time::sleep(TICK).await;
    }
}
