//! The whole of Stepgate, seen from outside: the gate in process, and the binary itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops where something is not as it should be"
)]

mod agent;
mod agentdojo;
mod archives;
mod attention;
mod audit;
mod backup;
mod bench;
mod binary;
mod budgets;
mod cli;
mod clients_generated;
mod console;
mod crash_exhaustive;
mod crash_real;
mod deploy;
mod detectors;
mod determinism;
mod disk;
mod erasable;
mod docs;
mod doctor;
mod ecosystem;
mod fairness;
mod faults;
mod gate;
mod gateway_tools;
mod grants;
mod home;
mod http_client;
mod http_lifetime;
mod http_wire;
mod labels;
mod load;
mod mcp;
mod mcp_clients;
mod mcp_conformance;
mod mcp_sameness;
mod mcp_scene;
mod million;
mod monitoring;
mod no_self_approval;
mod nodes;
mod notify;
mod origins;
mod other_user;
mod people;
mod policy_cli;
mod policy_examples;
mod policy_init;
mod proofs;
mod random;
mod scene;
mod screen;
mod shadow;
mod spec_000;
mod spec_001;
mod spec_002;
mod spec_004;
mod stops;
mod structure;
mod tamper;
mod telemetry;
mod terminal;
mod tls;
mod tools_off;
#[allow(dead_code, reason = "the tests of the store use more of it")]
#[path = "../../../stepgate-store/tests/it/older_keys.rs"]
mod older_keys;
#[path = "../../../stepgate-store/tests/it/unfolded.rs"]
mod unfolded;
mod unseen_args;
mod upgrade;
mod verify_beside;
