//! Configuration of a gateway, from a file or from options.

use std::fs;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use tidegate_core::aggregate::AggregateConfig;
use tidegate_core::aggregate::sites::SiteRule;
use tidegate_live::gateway::GatewayConfig;

use super::GatewayArgs;

/// A configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    site_interface: String,
    path_interface: Option<String>,
    #[serde(default)]
    aggregation: AggregateConfig,
    remote: Vec<SiteRule>,
}

/// The valid configuration that the arguments describe.
pub(super) fn read(args: &GatewayArgs) -> Result<GatewayConfig> {
    let Some(path) = &args.config else {
        let config = of_options(args);
        config.validate()?;
        return Ok(config);
    };
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let config = parse(&text).map_err(|error| anyhow!("{name}: {error}"))?;
    ensure!(
        args.kernel || !config.path_interface.is_empty(),
        "{name}: `path_interface` is missing: only with --kernel there is none"
    );
    Ok(config)
}

fn of_options(args: &GatewayArgs) -> GatewayConfig {
    GatewayConfig {
        site_interface: args.site.clone().unwrap_or_default(),
        path_interface: args.path.clone().unwrap_or_default(),
        aggregation: AggregateConfig {
            max_shares: args.max_shares,
            ..AggregateConfig::default()
        },
        remote: vec![SiteRule {
            hosts: args.hosts.clone(),
            local: Vec::new(),
            ports: args.port.clone(),
            applications: args.application.clone(),
        }],
    }
}

/// The configuration in the text of a file.
fn parse(text: &str) -> Result<GatewayConfig, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let config = GatewayConfig {
        site_interface: file.site_interface,
        path_interface: file.path_interface.unwrap_or_default(),
        aggregation: file.aggregation,
        remote: file.remote,
    };
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::aggregate::{Policy, Sampling};

    use super::*;

    const EXAMPLE: &str = include_str!("../../../../packaging/gateway.toml");

    #[test]
    fn packaged_example_is_valid() {
        let config = parse(EXAMPLE).unwrap();
        assert_eq!(config.site_interface, "eth1");
        assert_eq!(config.aggregation.max_shares, 24);
        assert_eq!(config.aggregation.idle, Duration::from_secs(30));
        assert_eq!(config.aggregation.strangers, Policy::Forward);
        assert_eq!(config.aggregation.sampling, Sampling::Bfld);
        let remote = &config.remote[0];
        assert!(remote.hosts[0].contains("198.51.100.9".parse().unwrap()));
        assert!(remote.ports[1].contains(6_050) && remote.applications[0].contains(1));
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        let error = |old: &str, new: &str| {
            assert!(EXAMPLE.contains(old));
            parse(&EXAMPLE.replace(old, new)).unwrap_err()
        };
        let unknown = error("max_shares", "max_share");
        assert!(unknown.contains("unknown field `max_share`"), "{unknown}");
        assert!(unknown.contains("line "), "{unknown}");
        let prefix = error("198.51.100.0/24", "198.51.100.1/24");
        assert!(prefix.contains("bits after the prefix"), "{prefix}");
        let ports = error("\"6000-6100\"", "\"6100-6000\"");
        assert!(ports.contains("6000-6100"), "{ports}");
        let ports = error("5008,", "500800,");
        assert!(ports.contains("a range such as"), "{ports}");
        let key = error("site_interface", "interface");
        assert!(key.contains("unknown field `interface`"), "{key}");
        let same = error("\"eth2\"", "\"eth1\"");
        assert!(same.contains("both interfaces"), "{same}");
        let shares = error("max_shares = 24", "max_shares = 65");
        assert!(shares.contains("from 1 to 64"), "{shares}");
        let policy = error("\"forward\"", "\"refuse\"");
        assert!(policy.contains("`drop`"), "{policy}");
    }
}
