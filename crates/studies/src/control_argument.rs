//! Controllers on the command line.

use std::collections::BTreeMap;

use tidegate_core::controller::settings::Setting;
use tidegate_core::controller::{ControllerConfig, Controllers};

/// Parses any value of the key `control` of a scenario, or an argument of `send`, as `fixed:2Mb/s`.
///
/// # Errors
/// The text names no controller, or has invalid keys; the message names the valid ones.
pub(crate) fn parse(text: &str, controllers: &Controllers) -> Result<ControllerConfig, String> {
    if !text.starts_with('{') {
        return controllers
            .argument(text)
            .map_err(|error| error.to_string());
    }
    let read = toml::from_str::<BTreeMap<String, Setting>>(&format!("control = {text}"));
    let table = read.map_err(|error| error.message().to_owned())?;
    let value = table.into_values().next().expect("one key was written");
    controllers.read(value).map_err(|error| error.to_string())
}
