//! `quictun-client` and `quictun-server`: drop-in replacements for quic-tun v0.0.1 to v0.0.5.

use std::process::ExitCode;

use quictun_control::settings::ControlSettings;

use crate::exit::{self, ProgramError};
use crate::{client, host_tun, version};
use quictun_args::compat::flags::{self, Program};
use quictun_args::compat::settings::{self, ProgramAction, ProgramSettings};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;

/// Runs `quictun-client`, from its arguments to its exit code.
pub(crate) fn client_main() -> ExitCode {
    let inputs = Inputs::of_process();
    let asked = settings::client(&inputs);
    if let Ok(ProgramAction::Run(ready)) = &asked
        && let Some(host) = host_tun::wanted(&ready.settings)
    {
        return host.main(flags::CLIENT.name, std::env::args_os().skip(1).collect());
    }
    main(
        &flags::CLIENT,
        &inputs,
        asked,
        |settings| &settings.control,
        |settings| client::run(settings, None),
    )
}

/// Runs `quictun-server`, from its arguments to its exit code.
pub(crate) fn server_main() -> ExitCode {
    let inputs = Inputs::of_process();
    main(
        &flags::SERVER,
        &inputs,
        settings::server(&inputs),
        |settings| &settings.control,
        |settings| Ok(quictun_tunnel::server::run(settings, None)?),
    )
}

fn main<T>(
    program: &Program,
    inputs: &Inputs<'_>,
    asked: Result<ProgramAction<T>, Fault>,
    control: fn(&T) -> &ControlSettings,
    run: fn(T) -> Result<(), ProgramError>,
) -> ExitCode {
    let name = program.name;
    let warn = |line: &String| exit::say(&format!("{name}: warning: {line}"));
    let outcome = match asked {
        Err(fault) => {
            // A misspelt variable may be the cause.
            program.misspelt_variables(inputs).iter().for_each(warn);
            Err(fault.into())
        }
        Ok(ProgramAction::Print(text)) => exit::print(&text).map_err(ProgramError::from),
        Ok(ProgramAction::Version) => {
            let text = format!("{name} {}\n", version::WITH_COMMIT);
            exit::print(&text).map_err(ProgramError::from)
        }
        Ok(ProgramAction::Run(ProgramSettings {
            settings,
            warnings,
            startup,
        })) => {
            if control(&settings).log.level.is_debug() {
                for line in &startup {
                    exit::say_as_written(line);
                }
            }
            program.misspelt_variables(inputs).iter().for_each(warn);
            warnings.iter().for_each(warn);
            run(settings)
        }
    };
    exit::report(name, outcome).into()
}
