//! Flags that both echo servers share, and their running until Ctrl-C.

use std::net::TcpListener;
use std::time::Duration;

use clap::Parser;
use restante::transport::{Config, Cors, Doors, Transport, bind};

use super::DEFAULT_PATH;

/// Where and how to listen.
#[derive(Debug, Parser)]
pub(crate) struct Flags {
    /// Address to listen on; all interfaces if absent.
    #[arg(long)]
    host: Option<String>,
    /// TCP port; 0 for any.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// HTTP path.
    #[arg(long, default_value = DEFAULT_PATH)]
    path: String,
    /// Milliseconds between heartbeats.
    #[arg(long, default_value_t = 25_000)]
    ping_interval: u64,
    /// Milliseconds of silence beyond the interval.
    #[arg(long, default_value_t = 20_000)]
    ping_timeout: u64,
    /// Milliseconds in which a namespace must be joined.
    #[arg(long, default_value_t = 45_000)]
    connect_timeout: u64,
    /// Largest message in bytes.
    #[arg(long, default_value_t = 1_000_000)]
    max_payload: usize,
    /// I/O threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl Flags {
    /// The listening port.
    pub(crate) fn bind(&self) -> restante::Result<TcpListener> {
        bind(self.host.as_deref(), self.port)
    }

    /// The transport's settings; pages of all origins are welcome.
    pub(crate) fn config(&self) -> Config {
        Config {
            path: self.path.clone(),
            ping_interval: Duration::from_millis(self.ping_interval),
            ping_timeout: Duration::from_millis(self.ping_timeout),
            connect_timeout: Duration::from_millis(self.connect_timeout),
            max_message_bytes: self.max_payload,
            threads: self.threads,
            doors: Doors {
                cors: Some(Cors {
                    origins: vec!["*".to_owned()],
                    ..Cors::default()
                }),
                ..Doors::default()
            }
            .shared(),
            ..Config::default()
        }
    }
}

/// Runs until Ctrl-C.
pub(crate) fn run(transport: &Transport) -> std::io::Result<()> {
    tracing_subscriber::fmt::init();
    tracing::info!(address = %transport.local_addr(), "listening");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::signal::ctrl_c().await?;
        transport.close(Duration::from_secs(1)).await;
        Ok(())
    })
}
