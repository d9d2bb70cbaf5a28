//! An Engine.IO 4 server without a broker: every message comes back, text and binary.
//!
//! `cargo run --example engine_echo -- --port 3000 --ping-interval 300 --ping-timeout 200`

mod common;

use std::sync::Arc;

use clap::Parser;
use restante::clock::SystemClock;
use restante::transport::{EngineHandler, EngineService, Link, Transport, Violation, refuse_all};
use restante::wire::frame;

const DEFAULT_PATH: &str = "/engine.io/";

struct Echo;

impl EngineService for Echo {
    fn open(&self, link: Link) -> Box<dyn EngineHandler> {
        Box::new(EchoTo(link))
    }
}

struct EchoTo(Link);

impl EngineHandler for EchoTo {
    fn text(&mut self, text: &str) -> Result<(), Violation> {
        let mut out = Vec::with_capacity(frame::MAX_HEADER + 1 + text.len());
        frame::text(&[b"4", text.as_bytes()], &mut out);
        self.0.reply(out.into());
        Ok(())
    }

    fn binary(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let mut out = Vec::with_capacity(frame::MAX_HEADER + bytes.len());
        frame::binary(bytes, &mut out);
        self.0.reply(out.into());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = common::Flags::parse();
    let clock = Arc::new(SystemClock::new());
    let transport = Transport::start_engine(
        flags.bind()?,
        flags.config(),
        Arc::new(Echo),
        refuse_all(),
        clock,
    )?;
    Ok(common::run(&transport)?)
}
