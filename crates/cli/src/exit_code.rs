//! Exit code of an error.

use std::io;

use tidegate_console::exit::{BAD_INPUT, ENVIRONMENT, EnvironmentError, is_of_environment};
use tidegate_live::driver::DriveError;
use tidegate_live::emulator::EmulatorError;
use tidegate_live::gateway::{GatewayError, PortError};
use tidegate_live::netns::NetnsError;
use tidegate_live::tcp::TcpError;
use tidegate_live::tcp_sysctls::TcpConfigError;
use tidegate_live::tun::TunError;
use tidegate_media::SourceError;

/// Exit code of a command that ends with this error.
pub(crate) fn of(error: &anyhow::Error) -> u8 {
    if error.chain().any(is_environment) {
        ENVIRONMENT
    } else {
        BAD_INPUT
    }
}

fn is_environment(cause: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return is_of_environment(error);
    }
    if let Some(error) = cause.downcast_ref::<EmulatorError>() {
        use EmulatorError as Error;
        return matches!(
            error,
            Error::Namespace(_) | Error::Panicked | Error::System(_) | Error::Tun(_)
        );
    }
    if let Some(error) = cause.downcast_ref::<GatewayError>() {
        return match error {
            GatewayError::Config(_) | GatewayError::DifferentMedia => false,
            GatewayError::Port { cause, .. } => matches!(cause, PortError::System(_)),
            GatewayError::Lost { .. } | GatewayError::System(_) => true,
        };
    }
    if let Some(error) = cause.downcast_ref::<SourceError>() {
        return is_device(error);
    }
    cause.is::<EnvironmentError>()
        || cause.is::<DriveError>()
        || cause.is::<NetnsError>()
        || cause.is::<TcpError>()
        || cause.is::<TcpConfigError>()
        || cause.is::<TunError>()
        || tidegate_eventsd::is_environment(cause)
}

/// Whether a camera or another device failed.
fn is_device(error: &SourceError) -> bool {
    match error {
        SourceError::Unreadable { name, .. } | SourceError::ReadFailed { name, .. } => {
            name.starts_with("/dev/")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn the_cause_decides() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = Err::<(), _>(full).context("cannot write x").unwrap_err();
        assert_eq!(of(&full), ENVIRONMENT);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let missing = Err::<(), _>(missing).context("cannot read x").unwrap_err();
        assert_eq!(of(&missing), BAD_INPUT);
        assert_eq!(of(&anyhow!("a rate of zero")), BAD_INPUT);
        let lab = anyhow!(EnvironmentError::new("no /dev/net/tun")).context("lab");
        assert_eq!(of(&lab), ENVIRONMENT);
        assert_eq!(of(&anyhow!(EmulatorError::NoRoutes)), BAD_INPUT);
    }

    #[test]
    fn a_missing_camera_is_an_error_of_the_environment() {
        let unreadable = |name: &str| {
            of(&anyhow!(SourceError::Unreadable {
                name: name.to_owned(),
                why: "No such file or directory".to_owned(),
            }))
        };
        assert_eq!(unreadable("/dev/video9"), ENVIRONMENT);
        assert_eq!(unreadable("video9.mp4"), BAD_INPUT);
    }
}
