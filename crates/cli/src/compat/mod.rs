//! `quictun-client` and `quictun-server`: drop-ins for quic-tun v0.0.1 to v0.0.5.
//!
//! [`flags`] holds the flags and reads the command line, [`files`] the configuration files, [`settings`] makes
//! of both what the programs run with. What differs from the original is listed in each program's help.

use std::process::ExitCode;

use quictun_control::settings::ControlSettings;

use crate::exit::{self, Fault};
use crate::inputs::Inputs;
use crate::{host_tun, run};
use settings::{Asked, Ready};

pub mod files;
pub mod flags;
pub mod settings;

/// `quictun-client`, from the arguments to the exit code.
pub fn client_main() -> ExitCode {
    let asked = settings::client(&Inputs::of_process());
    if let Ok(Asked::Run(ready)) = &asked
        && let Some(host) = host_tun::wanted(&ready.settings)
    {
        return host.main(flags::CLIENT.name, std::env::args_os().skip(1).collect());
    }
    main(
        flags::CLIENT.name,
        asked,
        |settings| &settings.control,
        |settings| run::client(settings, None),
    )
}

/// `quictun-server`, from the arguments to the exit code.
pub fn server_main() -> ExitCode {
    main(
        flags::SERVER.name,
        settings::server(&Inputs::of_process()),
        |settings| &settings.control,
        |settings| run::server(settings, None),
    )
}

fn main<T>(
    program: &str,
    asked: Result<Asked<T>, Fault>,
    control: fn(&T) -> &ControlSettings,
    run: fn(T) -> anyhow::Result<()>,
) -> ExitCode {
    let outcome = match asked {
        Err(fault) => Err(fault.into()),
        Ok(Asked::Print(text)) => exit::print(&text),
        Ok(Asked::Run(Ready {
            settings,
            warnings,
            startup,
        })) => {
            if matches!(control(&settings).log.level.as_str(), "debug" | "trace") {
                for line in &startup {
                    exit::say(line);
                }
            }
            for line in &warnings {
                exit::say(&format!("{program}: warning: {line}"));
            }
            run(settings)
        }
    };
    exit::report(program, outcome).into()
}
