//! What users see of the broker's verbs, over the memory store and recorded outboxes.

mod bounds;
mod endings;
mod gate;
mod groups;
mod harness;
mod names;
mod opening;
mod owners;
mod queues;
mod realms;
mod routing;
mod staging;
mod threads;
