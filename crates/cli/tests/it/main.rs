//! Tests of the programs' command lines, from the outside.

mod bench;
mod compat_client;
mod compat_client_faults;
mod compat_server;
mod config_files;
mod documents;
mod drain;
mod first_run;
mod golden;
mod help;
mod lab;
mod link;
mod native_client;
mod native_server;
mod perf;
mod precedence;
mod print;
mod programs;
mod public_certificate;
mod reconnect;
mod take_over;
mod terminal_width;
mod test_inputs;
mod test_terminal;
mod unit_files;
mod watch;
