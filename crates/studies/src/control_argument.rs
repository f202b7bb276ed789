//! Controllers on the command line.

use tidegate_core::controller::ControllerConfig;
use tidegate_sim::scenario::Scenario;

/// Parses any value of the key `control` of a scenario with the scenario's parser.
///
/// # Errors
/// The text names no controller, or has invalid keys; the message names the valid ones.
pub(crate) fn parse(text: &str) -> Result<ControllerConfig, String> {
    let value = match text {
        table if table.starts_with('{') => table.to_owned(),
        word => format!("{word:?}"),
    };
    let scenario = format!(
        "name = \"a\"\nduration = \"1s\"\n[[link]]\nname = \"there\"\n[[link]]\nname = \"back\"\n\
         [[flow]]\nname = \"b\"\npath = [\"there\"]\nback = [\"back\"]\n\
         bulk = {{ packet = \"1000B\" }}\ncontrol = {value}\n"
    );
    let read = Scenario::parse("", &scenario, &|_| {
        Err("files are not allowed here".to_owned())
    });
    let config = read.map_err(|error| error.fault.to_string())?.flows[0]
        .control
        .clone();
    config.ok_or_else(|| "a controller is needed".to_owned())
}
